"""Declarations of data sets: what an admin states before any private byte is read.

Everything here is public. A declaration fixes the space (its shape, its neighbouring relation, the grid its
numbers live on, the capacity that bounds its mass) and so every bound that exactness rests on; none of that is
ever derived from the data.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from app.spaces.errors import InvalidDataset, InvalidRequest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Largest sum of counts a table or multiset may hold when its number of records is not public.
DEFAULT_CAPACITY = 2**31 - 1
#: What stands beside attributes in conditions.
CONNECTIVES = ("all", "any", "not")
#: No declared axis is longer than this, so that sizes stay plain integers everywhere.
MAX_AXIS = 2**31 - 1


#: Describing a problem takes about a kilobyte, and only a few are shown: beyond so many they are counted alone.
_MOST_TOLD = 1000


def explain(error: ValidationError) -> str:
    """One sentence a problem: where it is and what is wrong, without the offending value."""
    if error.error_count() > _MOST_TOLD:
        return f"{error.error_count():,} fields are unknown or not of their kind"
    parts = []
    for item in error.errors(include_input=False, include_url=False, include_context=False)[:5]:
        where = ".".join(str(step) for step in item["loc"]) or "body"
        message = str(item["msg"]).removeprefix("Value error, ")
        parts.append(f"{where}: {message}")
    return "; ".join(parts)


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
#: In a list that may be long only the first wrong item is described: a problem takes far more memory than its item.
Labels = Annotated[tuple[str, ...], Field(fail_fast=True)]


class Budget(Model):
    """The (epsilon, delta) that all releases from one data set may spend together."""

    epsilon: Number = Field(gt=0, le=1000, max_digits=30, description="total epsilon of the data set")
    delta: Number = Field(gt=0, lt=1, max_digits=60, description="total delta of the data set")


def _check_trimmed(names: tuple[str, ...], what: str) -> None:
    """Files are read without the white space around names: two that differ in nothing else would be one."""
    if any(name != name.strip() for name in names):
        raise ValueError(f"{what} must not begin or end with white space")


class Attribute(Model):
    """One attribute of a table: integer codes (``size``), categories (``values``) or numeric bins.

    Numeric attributes have half-open bins, the last one closed; ``bins`` makes equal ones between ``lower`` and
    ``upper``, ``edges`` names them all. With integer bounds and neither, bins are one unit wide.
    """

    name: str = Field(min_length=1, max_length=128)
    size: Whole | None = Field(default=None, ge=1, le=MAX_AXIS)
    values: Annotated[tuple[str | int, ...], Field(fail_fast=True)] | None = Field(
        default=None, min_length=1, max_length=1_000_000
    )
    lower: Number | None = None
    upper: Number | None = None
    bins: Whole | None = Field(default=None, ge=1, le=1_000_000)
    edges: Annotated[tuple[Number, ...], Field(fail_fast=True)] | None = Field(
        default=None, min_length=2, max_length=1_000_001
    )

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        _check_trimmed((value,), "an attribute's name")
        if value in CONNECTIVES:
            raise ValueError(f"{', '.join(CONNECTIVES)} are words of conditions: name the attribute otherwise")
        return value

    @field_validator("values", mode="before")
    @classmethod
    def _categories(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(v, bool | float) for v in value):
            raise ValueError("categories are strings or integers")
        if isinstance(value, list | tuple) and any(isinstance(v, int) and abs(v) > 2**53 for v in value):
            raise ValueError("integers beyond 2^53 are no JSON numbers: declare them as strings")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        numeric = any(v is not None for v in (self.lower, self.upper, self.bins, self.edges))
        if (self.size is not None) + (self.values is not None) + numeric != 1:
            raise ValueError("give exactly one of size, values, or lower and upper (or edges)")
        if self.values is not None and len(set(map(str, self.values))) != len(self.values):
            raise ValueError("values must be distinct")
        if numeric:
            self._check_numeric()
        return self

    def _check_numeric(self) -> None:
        if self.edges is not None:
            if self.bins is not None:
                raise ValueError("give bins or edges, not both")
            if any(b <= a for a, b in pairwise(self.edges)):
                raise ValueError("edges must increase strictly")
            if self.lower not in (None, self.edges[0]) or self.upper not in (None, self.edges[-1]):
                raise ValueError("lower and upper must be the first and the last edge")
            return
        if self.lower is None or self.upper is None:
            raise ValueError("a numeric attribute needs lower and upper, or edges")
        if self.upper <= self.lower:
            raise ValueError("upper must be above lower")
        if self.bins is None:
            if self.lower != int(self.lower) or self.upper != int(self.upper):
                raise ValueError("bins or edges are needed unless lower and upper are integers")
            if self.upper - self.lower > 1_000_000:
                raise ValueError("more than 1,000,000 unit bins: declare bins or edges")
        elif (self.upper - self.lower) / self.bins < max(abs(self.lower), abs(self.upper)) / 2**48:
            raise ValueError("bins are narrower than numbers can tell apart: declare fewer")

    @property
    def numeric(self) -> bool:
        """Whether the attribute is binned."""
        return self.size is None and self.values is None

    @property
    def length(self) -> int:
        """Number of cells along this attribute's axis."""
        if self.size is not None:
            return self.size
        if self.values is not None:
            return len(self.values)
        if self.edges is not None:
            return len(self.edges) - 1
        if self.bins is not None:
            return self.bins
        assert self.lower is not None
        assert self.upper is not None
        return int(self.upper - self.lower)

    def bin_edges(self) -> list[Fraction]:
        """Exact edges of a numeric attribute, one more than it has bins."""
        if self.edges is not None:
            return [Fraction(e) for e in self.edges]
        assert self.lower is not None
        assert self.upper is not None
        low = Fraction(self.lower)
        width = (Fraction(self.upper) - low) / self.length
        return [low + i * width for i in range(self.length + 1)]


class Declaration(Model):
    """What every kind of data set declares."""

    name: str
    budget: Budget
    records_public: bool = Field(
        default=False, strict=True, description="whether the number of records, edges or elements may be shown"
    )
    access: Literal["open", "granted"] = "open"
    description: str = Field(default="", max_length=2000)

    @property
    def mass_public(self) -> bool:
        """Whether the sum of all counts is known to everybody."""
        return self.records_public

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit")
        return value


class TableSpec(Declaration):
    """Records over a product of finite attributes; one axis an attribute, one cell a combination."""

    kind: Literal["table"]
    attributes: Annotated[tuple[Attribute, ...], Field(fail_fast=True)] = Field(min_length=1, max_length=60)
    outside: Literal["refuse", "drop"] = "refuse"
    capacity: Whole | None = Field(default=None, ge=1, le=2**40)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [a.name for a in self.attributes]
        if len(set(names)) != len(names):
            raise ValueError("attribute names must be distinct")
        return self


def _grid_bits(grid: float | None) -> int:
    """Bits of a grid 2^-bits; None means the default 2^-10."""
    if grid is None:
        return 10
    bits = -math.log2(grid)
    if bits != int(bits) or not 0 <= bits <= 20:
        raise ValueError("grid must be 2^-j with j from 0 to 20")
    return int(bits)


def _labels_distinct(labels: tuple[str, ...] | None, count: int, what: str) -> None:
    if labels is None:
        return
    if len(labels) != count:
        raise ValueError(f"{what}: {count} labels are needed, {len(labels)} are given")
    if len(set(labels)) != len(labels):
        raise ValueError(f"{what}: labels must be distinct")
    _check_trimmed(labels, f"{what}: a label")


class _GraphDeclaration(Declaration):
    """Edges with weights in [0, 1].

    ``weighted`` tells whether the file carries a third column. Left out, the file's number of columns (a fact
    of its layout, not of its records) decides, and registration writes the decision into the declaration.
    """

    weighted: bool | None = Field(default=None, strict=True)
    grid: Real | None = Field(default=None, gt=0, le=1)

    @field_validator("grid")
    @classmethod
    def _grid(cls, value: float | None) -> float | None:
        _grid_bits(value)
        return value

    @property
    def data_bits(self) -> int:
        """Weights are integers in units of 2^-data_bits."""
        return _grid_bits(self.grid) if self.weighted else 0


class BipartiteSpec(_GraphDeclaration):
    """A bipartite graph: one axis a side."""

    kind: Literal["bipartite"]
    left: Whole = Field(ge=1, le=2**26)
    right: Whole = Field(ge=1, le=2**26)
    left_labels: Labels | None = None
    right_labels: Labels | None = None

    @model_validator(mode="after")
    def _labels(self) -> Self:
        _labels_distinct(self.left_labels, self.left, "left_labels")
        _labels_distinct(self.right_labels, self.right, "right_labels")
        return self


class GraphSpec(_GraphDeclaration):
    """A directed or undirected graph on one set of nodes."""

    kind: Literal["graph"]
    nodes: Whole = Field(ge=2, le=2**26)
    directed: bool = Field(default=False, strict=True)
    loops: Literal["refuse", "drop"] = "refuse"
    labels: Labels | None = None

    @model_validator(mode="after")
    def _labels(self) -> Self:
        _labels_distinct(self.labels, self.nodes, "labels")
        return self


class MatrixSpec(Declaration):
    """A real matrix with entries in declared bounds; neighbours differ in one entry.

    Its records are its cells, whose number is declared anyway. The sum of the entries is what one entry moves, so it
    is never public, whatever ``records_public`` says: a mechanism that needs it buys it.
    """

    kind: Literal["matrix"]
    rows: Whole = Field(ge=1, le=2**26)
    columns: Whole = Field(ge=1, le=2**26)
    lower: Real
    upper: Real
    grid: Real = Field(default=2.0**-10, gt=0, le=1)
    absent: Real | None = None

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        bits = self.data_bits
        for name in ("lower", "upper", "absent"):
            value = getattr(self, name)
            if value is not None and (abs(value) > 2**20 or value * 2.0**bits != int(value * 2.0**bits)):
                raise ValueError(f"{name} must lie on the grid and within 2^20")
        if self.upper <= self.lower:
            raise ValueError("upper must be above lower")
        if self.absent is not None and not self.lower <= self.absent <= self.upper:
            raise ValueError("absent must lie between lower and upper")
        return self

    @property
    def mass_public(self) -> bool:
        """Never: see the class."""
        return False

    @property
    def data_bits(self) -> int:
        """Entries are integers in units of 2^-data_bits."""
        return _grid_bits(self.grid)


class MultisetSpec(Declaration):
    """Counts of strings; the universe is every string there is."""

    kind: Literal["multiset"]
    capacity: Whole | None = Field(default=None, ge=1, le=2**40)


Spec = TableSpec | BipartiteSpec | GraphSpec | MatrixSpec | MultisetSpec

_ADAPTER: TypeAdapter[Spec] = TypeAdapter(Annotated[Spec, Field(discriminator="kind")])


def written(spec: Spec) -> dict[str, Any]:
    """A declaration as JSON, which :func:`parse_spec` reads as the same: its one written form, without what was left
    out.
    """
    return spec.model_dump(mode="json", exclude_none=True)


def parse_spec(declared: Any) -> Spec:
    """The declaration that ``declared`` (parsed JSON) states.

    Raises:
        InvalidDataset: when a field is missing, unknown, or out of its range; the message names it.
        InvalidRequest: when the name is not usable, which is no matter of the data.
    """
    if not isinstance(declared, dict):
        raise InvalidDataset("the spec must be a JSON object")
    if not isinstance(declared.get("name"), str) or not NAME.fullmatch(declared["name"]):
        raise InvalidRequest("name: 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit")
    try:
        return _ADAPTER.validate_python(declared)
    except ValidationError as error:
        raise InvalidDataset(explain(error)) from None
