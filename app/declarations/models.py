"""Models for declarations and requests: closed models, numbers that JSON keeps."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer


class Model(BaseModel):
    """A closed, immutable record: unknown fields are refused, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _survives(value: Decimal) -> Decimal:
    """The descriptor states numbers as JSON does, and everything public is computed again from it."""
    number = float(value)
    if not math.isfinite(number) or Decimal(repr(number)) != value:
        raise ValueError("has more digits than a JSON number keeps: at most 15 are safe")
    return value


def _number(value: Any) -> Any:
    """Only a number is one: neither ``true`` nor ``"1"``."""
    if isinstance(value, bool | str):
        raise ValueError("must be a number")
    return value


def _plain(value: Decimal) -> int | float:
    """A decimal as the JSON number that is read as the same decimal (see :func:`_survives`)."""
    return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else float(value)


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 10.0 is the integer 10."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: A decimal that is the same after it was written as a JSON number and read again.
Number = Annotated[
    Decimal, BeforeValidator(_number), AfterValidator(_survives), PlainSerializer(_plain, when_used="json")
]
Real = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, Field(strict=True), BeforeValidator(_whole)]
