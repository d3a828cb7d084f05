"""A request for a release."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import orjson
from pydantic import Field, ValidationError, field_validator

from app.constructions.mechanism import Method, ReleaseOptions
from app.declarations.errors import InvalidRequest
from app.declarations.explaining import explain
from app.spaces.workload_request import WorkloadRequest


class ReleaseRequest(ReleaseOptions):
    """A release: data set, workload, how it is released, and its share of the budget."""

    dataset: str = Field(min_length=1, max_length=64)
    method: Method = Field(default="auto", description="left out: what is expected to err least")
    workload: WorkloadRequest
    epsilon: Decimal = Field(gt=0, le=1000, max_digits=30, description="share of the data set's epsilon")
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
                "workload": self.workload.model_dump(mode="json", exclude_none=True),
                "options": self._options,
            },
        }

    def document(self) -> bytes:
        """The part of it that is shown with the release, as JSON."""
        workload = self.workload.model_dump(mode="json", exclude_none=True)
        return orjson.dumps({"method": self.method, "workload": workload, "options": self._options})


def parse_release(asked: Any) -> ReleaseRequest:
    """The release that ``asked`` (parsed JSON) states.

    Raises:
        InvalidRequest: naming the field that is missing, unknown or out of range.
    """
    try:
        return ReleaseRequest.model_validate(asked)
    except ValidationError as error:
        raise InvalidRequest(explain(error, ReleaseRequest, asked)) from None
