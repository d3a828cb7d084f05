"""An analyst's request for a session."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from app.constructions.mechanism import (
    AnyMechanism,
    DirectNoise,
    FromEvidenceMechanism,
    Iterative,
    WorkloadMechanism,
    iterative,
)
from app.declarations.errors import InvalidRequest
from app.declarations.explaining import explain
from app.declarations.models import Model, Whole
from app.spaces.queries.request import LEAST_CONFIDENCE

#: The most queries that can be declared.
MOST_QUERIES = 10**9
#: The largest half width of an interval that can be asked for: no data have more records.
MOST_WITHIN = 2.0**31
#: The fields of sessions that answer from evidence.
_EVIDENCE = ("within", "confidence", "start", "share", "contract")

Calibration = Literal["rdp", "exact", "jt2012", "gru2011"]


class SessionRequest(Model):
    """A session: data set, mechanism, share of the budget, and the promise asked for."""

    dataset: str = Field(min_length=1, max_length=64)
    mechanism: AnyMechanism = Field(
        default_factory=lambda: FromEvidenceMechanism(construction="auto"),
        description="left out: what serves best is chosen",
    )
    epsilon: Decimal = Field(
        ge=0, le=1000, max_digits=30, description="share of the data set's epsilon; of 0 what is free can be asked"
    )
    max_queries: Whole = Field(
        default=MOST_QUERIES, ge=1, le=MOST_QUERIES, description="may be left out where evidence answers"
    )
    beta: float = Field(default=0.05, gt=0, lt=1, description="probability that some answer breaks its bound")
    max_updates: Whole | None = Field(default=None, ge=1, le=10**7, description="left out: the guaranteed plan")
    calibration: Calibration = "rdp"
    release: Literal["single", "race"] = "single"
    within: float | None = Field(
        default=None,
        gt=0,
        le=MOST_WITHIN,
        allow_inf_nan=False,
        description="evidence: half the width of every interval, in counts",
    )
    confidence: float = Field(default=0.95, ge=LEAST_CONFIDENCE, lt=1, description="evidence: of every interval")
    start: Literal["evidence", "nothing"] = Field(
        default="evidence", description="evidence: from all that was measured of the data set, or from nothing"
    )
    share: bool = Field(default=True, strict=True, description="evidence: whether what is measured may serve others")
    contract: bool = Field(
        default=False, strict=True, description="evidence: whether tests keep an error bound of all answers at once"
    )

    dummy: bool = Field(
        default=False,
        strict=True,
        description="the same session on made-up records of the declaration alone: costs nothing, tells nothing",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        publication = isinstance(self.mechanism, WorkloadMechanism) and self.mechanism.method == "publication"
        free = self.mechanism.construction in ("auto", "evidence") and not self.contract
        if not self.epsilon and (not (free or publication) or self.start == "nothing"):
            raise ValueError(
                "epsilon: with 0 what is free is asked, in a session of evidence that starts from what was measured: "
                "leave mechanism, contract and start out, or give an epsilon above 0"
            )
        if self.release == "race" and self.calibration != "rdp":
            raise ValueError("a race is calibrated by rdp")
        evidence = isinstance(self.mechanism, FromEvidenceMechanism | WorkloadMechanism)
        if not evidence:
            for name in _EVIDENCE:
                if name in self.model_fields_set:
                    raise ValueError(f"{name} belongs to sessions that answer from evidence")
        if not self.declared and (self.contract or not evidence):
            raise ValueError("max_queries: say how many queries there will be at most")
        if self.contract and self.mechanism.construction == "histogram":
            raise ValueError("contract: a histogram is measured whole, so there is nothing to test: use evidence")
        if self.contract and self.within is not None:
            raise ValueError("within: what a contract keeps follows from its plan, so leave one of them out")
        return self

    @property
    def declared(self) -> bool:
        """Whether the number of queries was declared."""
        return "max_queries" in self.model_fields_set

    @field_validator("epsilon", "beta", "within", "confidence", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool | str):
            raise ValueError("must be a number")
        return value

    @field_validator("beta")
    @classmethod
    def _beta(cls, value: float) -> float:
        if value < 1e-9:
            raise ValueError("must be at least 1e-9")
        return value

    @property
    def may_be_pure(self) -> bool:
        """Whether the plan may depend on whether a session of pure noise may take all that is left of the budget."""
        pure = isinstance(self.mechanism, FromEvidenceMechanism | WorkloadMechanism)
        return bool(self.epsilon) and not self.contract and (pure or self.mechanism.construction == "laplace")

    @property
    def iterative(self) -> Iterative:
        """The mechanism of a session whose hypothesis a construction keeps.

        Raises:
            TypeError: of another session.
        """
        return iterative(self.mechanism)

    @property
    def workload(self) -> WorkloadMechanism:
        """The mechanism of a release.

        Raises:
            TypeError: of another session.
        """
        if not isinstance(self.mechanism, WorkloadMechanism):
            raise TypeError(f"{self.mechanism.construction} is no release")
        return self.mechanism

    def document(self) -> dict[str, Any]:
        """The mechanism with everything that fixes the session, as the transcript's header keeps it; that a session is
        a dummy the header says beside it."""
        evidence = {name: getattr(self, name) for name in _EVIDENCE} if self.mechanism.from_evidence else {}
        return {
            **self.mechanism.model_dump(mode="json", exclude_none=True),
            **evidence,
            "epsilon": float(self.epsilon),
            "max_queries": self.max_queries if self.declared else None,
            "beta": self.beta,
            "max_updates": self.max_updates,
            "calibration": self.calibration,
            "release": self.release,
        }

    def with_mechanism(self, construction: DirectNoise | Literal["evidence", "histogram"]) -> SessionRequest:
        """The same request of a mechanism without parameters.

        Raises:
            InvalidRequest: when something else that it asks for belongs to another mechanism.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return parse_request(given | {"mechanism": {"construction": construction}})

    @classmethod
    def from_document(cls, document: Mapping[str, Any], dataset: str) -> SessionRequest:
        """The request a header's mechanism keeps.

        Raises:
            InvalidRequest: when it keeps none.
        """
        own = {key: value for key, value in document.items() if key in cls.model_fields}
        if own.get("max_queries", 0) is None:
            del own["max_queries"]
        mechanism = {key: value for key, value in document.items() if key not in cls.model_fields}
        return parse_request({**own, "mechanism": mechanism, "dataset": dataset})


def parse_request(asked: Any) -> SessionRequest:
    """The session that ``asked`` (parsed JSON) states.

    Raises:
        InvalidRequest: naming the field that is missing, unknown or out of range.
    """
    try:
        return SessionRequest.model_validate(asked)
    except ValidationError as error:
        raise InvalidRequest(explain(error, SessionRequest, asked)) from None


def parse_session(asked: Any) -> SessionRequest:
    """The same of a session that is asked questions, which that of a release is not.

    Raises:
        InvalidRequest: as :func:`parse_request`, and of a workload.
    """
    request = parse_request(asked)
    if isinstance(request.mechanism, WorkloadMechanism):
        raise InvalidRequest("mechanism: a workload is released: send it to /v1/releases")
    return request
