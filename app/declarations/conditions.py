"""Conditions on records in words, as questions and declarations write them: what one attribute's values satisfy, joined
by ``all``, ``any`` and ``not``.

Whether they fit the attributes of a table is the compiler's question (:mod:`app.spaces.queries.conditions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr
from pydantic import field_validator as _field_validator
from pydantic import model_validator as _model_validator

Value = StrictInt | StrictStr | Annotated[float, Field(strict=True)]

#: Conditions joined by ``all``, ``any`` and ``not``, each of which takes as long as it has values to look at.
MOST_CONDITIONS = 256


class Condition(BaseModel):
    """A set of values of one attribute: one of ``between``, ``in``, ``equals`` and ``at``, or comparisons.

    Of comparisons there is one from below (``ge`` or ``gt``), one from above (``lt`` or ``le``), or one of each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    between: tuple[Value, Value] | None = Field(
        default=None, description="numeric: half-open, on bin edges where there is no grid; codes and dates: inclusive"
    )
    in_: Annotated[list[Value | None], Field(fail_fast=True)] | None = Field(default=None, alias="in", min_length=1)
    equals: Value | None = Field(default=None, description="null: records without a value")
    ge: Value | None = Field(default=None, description="at least; numeric: a bin edge")
    gt: Value | None = Field(default=None, description="above; codes, and bins that are one integer wide")
    lt: Value | None = Field(default=None, description="below; numeric: a bin edge")
    le: Value | None = Field(default=None, description="at most; as gt, or the last bin edge")

    at: Literal["lower", "upper"] | None = Field(
        default=None,
        description="numbers and dates: the value, or the bin, at that bound, where values beyond it count that are "
        "clamped",
    )

    @_model_validator(mode="after")
    def _one(self) -> Self:
        compared = not (self.ge is None and self.gt is None and self.lt is None and self.le is None)
        named = [self.between is not None, self.in_ is not None, self.at is not None, "equals" in self.model_fields_set]
        if sum(named) + compared != 1:
            raise ValueError("give exactly one of between, in, equals, at, or comparisons")
        if (self.ge is not None and self.gt is not None) or (self.lt is not None and self.le is not None):
            raise ValueError("give at most one of ge and gt, and one of lt and le")
        return self

    @property
    def names_missing(self) -> bool:
        """Whether it is of the records without a value."""
        return self.equals is None and "equals" in self.model_fields_set


def _spelled_out(condition: Any) -> Any:
    """A bare value as the condition that it equals, a bare list as that it holds."""
    if isinstance(condition, dict | Condition):
        return condition
    return {"in": condition} if isinstance(condition, list) else {"equals": condition}


class Where(BaseModel):
    """Conditions by attribute, all of which must hold.

    Beside attributes there may be ``all`` and ``any``, lists of further conditions, and ``not``, what must not hold.
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    __pydantic_extra__: dict[
        str,
        Annotated[
            Condition,
            BeforeValidator(_spelled_out, json_schema_input_type=Condition | Value | None | list[Value | None]),
        ],
    ]
    all: Annotated[list[Where], Field(fail_fast=True)] = Field(default_factory=list, min_length=1)
    any: Annotated[list[Where], Field(fail_fast=True)] = Field(default_factory=list, min_length=1)
    not_: Where | None = Field(default=None, alias="not")

    @_model_validator(mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        # Looked at before any of them is read, as that takes far longer.
        if isinstance(value, dict) and not _JOINED.isdisjoint(value):
            number = 0
            for part in _parts(value):
                number += len(part.keys() - _JOINED) or not part
                if number > MOST_CONDITIONS:
                    raise ValueError(
                        f"at most {MOST_CONDITIONS} conditions are joined by all, any and not: use lists of values"
                    )
        return value

    @_field_validator("not_", mode="before")
    @classmethod
    def _something(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must be conditions")
        return value

    @property
    def conditions(self) -> dict[str, Condition]:
        """Those by attribute."""
        return self.__pydantic_extra__


_JOINED = frozenset({"all", "any", "not"})


def _parts(value: Any) -> Iterator[dict[Any, Any]]:
    """Conditions as they came, with all that they are made of."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            for name in _JOINED & part.keys():
                left += part[name] if isinstance(part[name], list) else [part[name]]


def written_where(where: Where) -> dict[str, Any]:
    """Conditions as JSON that is read as the same, without what was left out."""
    found: dict[str, Any] = {
        name: condition.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for name, condition in where.conditions.items()
    }
    found |= {name: [written_where(each) for each in joined] for name, joined in _joined(where) if joined}
    return found if where.not_ is None else found | {"not": written_where(where.not_)}


def _joined(where: Where) -> tuple[tuple[str, list[Where]], ...]:
    return ("all", where.all), ("any", where.any)
