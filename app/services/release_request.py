"""A request for a release."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, ValidationError, field_validator, model_validator

from app.constructions.mechanism import Method, ReleaseOptions
from app.declarations.errors import InvalidRequest
from app.declarations.explaining import explain
from app.declarations.models import Model
from app.spaces.workload_request import MOST_NAMED, WorkloadRequest


class OfSession(Model):
    """The counts, tables of counts and statistics that a session answered."""

    session: str = Field(min_length=1, max_length=64)


class ReleaseRequest(ReleaseOptions):
    """A release: data set, workload, how it is released, and its share of the budget."""

    dataset: str = Field(min_length=1, max_length=64)
    method: Method = Field(default="auto", description="left out: what is expected to err least")
    workload: WorkloadRequest | None = Field(default=None, description="what is asked; publication: or tables")
    tables: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_NAMED)] | OfSession | None = Field(
        default=None, description="publication: queries as sessions take them, or those that a session answered"
    )
    epsilon: Decimal = Field(
        ge=0, le=1000, max_digits=30, description="share of the data set's epsilon; publication: 0 measures nothing"
    )
    start: Literal["evidence", "nothing"] = Field(
        default="evidence", description="whether what was measured of the data set before is used too"
    )
    share: bool = Field(default=True, strict=True, description="whether what is measured may serve others")

    @field_validator("epsilon", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool | str):
            raise ValueError("must be a number")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.workload is None) == (self.tables is None):
            raise ValueError("give workload" if self.method != "publication" else "give one of workload, tables")
        if self.tables is not None and self.method != "publication":
            raise ValueError("tables go with method publication")
        if not self.epsilon and self.method != "publication":
            raise ValueError("epsilon: must be above 0, but for method publication")
        return self

    def asking(self, recorded: Callable[[str], WorkloadRequest]) -> ReleaseRequest:
        """The same with a workload.

        Args:
            recorded: the questions that a session of this id answered.
        """
        match self.tables:
            case None:
                return self
            case OfSession(session=session):
                workload = recorded(session)
            case queries:
                workload = WorkloadRequest(queries=queries)
        return self.model_copy(update={"workload": workload, "tables": None})

    @property
    def _workload(self) -> dict[str, Any]:
        assert self.workload is not None
        return self.workload.model_dump(mode="json", exclude_none=True)

    @property
    def _options(self) -> dict[str, Any]:
        given = self.model_dump(mode="json", include=set(ReleaseOptions.model_fields))
        return {name: value for name, value in given.items() if value is not None}

    def session(self) -> dict[str, Any]:
        """The session that holds its share, as it is asked for."""
        return {
            "dataset": self.dataset,
            "epsilon": self.epsilon,
            "max_queries": 1,
            "start": self.start,
            "share": self.share,
            "mechanism": {
                "construction": "workload",
                "method": self.method,
                "workload": self._workload,
                "options": self._options,
            },
        }

    def document(self) -> bytes:
        """The part of it that is shown with the release, as JSON."""
        return orjson.dumps({"method": self.method, "workload": self._workload, "options": self._options})


def parse_release(asked: Any) -> ReleaseRequest:
    """The release that ``asked`` (parsed JSON) states.

    Raises:
        InvalidRequest: naming the field that is missing, unknown or out of range.
    """
    try:
        return ReleaseRequest.model_validate(asked)
    except ValidationError as error:
        raise InvalidRequest(explain(error, ReleaseRequest, asked)) from None
