"""What an analyst asks for when opening a session."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from app.constructions.mechanism import Mechanism
from app.spaces.errors import InvalidRequest
from app.spaces.spec import Model, Whole, explain

Calibration = Literal["rdp", "exact", "jt2012", "gru2011"]


class SessionRequest(Model):
    """A session: data set, mechanism, share of the budget, and the promise asked for."""

    dataset: str = Field(min_length=1, max_length=64)
    mechanism: Mechanism
    epsilon: Decimal = Field(gt=0, le=1000, max_digits=30, description="share of the data set's epsilon")
    max_queries: Whole = Field(ge=1, le=10**9)
    beta: float = Field(default=0.05, gt=0, lt=1, description="probability that some answer breaks its bound")
    max_updates: Whole | None = Field(default=None, ge=1, le=10**7, description="left out: the guaranteed plan")
    calibration: Calibration = "rdp"
    release: Literal["single", "race"] = "single"

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.release == "race" and self.calibration != "rdp":
            raise ValueError("a race is calibrated by rdp")
        return self

    @field_validator("epsilon", "beta", mode="before")
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
        return self.mechanism.direct == "laplace"

    def document(self) -> dict[str, Any]:
        """The mechanism with everything that fixes the session, as the transcript's header keeps it."""
        return {
            **self.mechanism.model_dump(mode="json", exclude_none=True),
            "epsilon": float(self.epsilon),
            "max_queries": self.max_queries,
            "beta": self.beta,
            "max_updates": self.max_updates,
            "calibration": self.calibration,
            "release": self.release,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], dataset: str) -> SessionRequest:
        """The request a header's mechanism keeps.

        Raises:
            InvalidRequest: when it keeps none.
        """
        own = {key: value for key, value in document.items() if key in cls.model_fields}
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
        raise InvalidRequest(explain(error)) from None
