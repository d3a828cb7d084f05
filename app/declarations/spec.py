"""Declarations of data sets: what an admin states before any private byte is read.

Everything here is public. A declaration fixes the space (its shape, its neighbouring relation, the grid its
numbers live on, the capacity that bounds its mass) and so every bound that exactness rests on; none of that is
ever derived from the data.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainSerializer, TypeAdapter, ValidationError, field_validator, model_validator

from app.declarations.attributes import Attribute, check_trimmed
from app.declarations.conditions import Where, written_where
from app.declarations.errors import InvalidDataset, InvalidRequest
from app.declarations.explaining import explain, problems
from app.declarations.models import Model, Number, Real, Whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: The most attributes of a table.
MOST_ATTRIBUTES = 60
#: The most nodes of a graph, or of a side.
MOST_NODES = 2**26
#: Largest sum of counts a table or multiset may hold when its number of records is not public.
DEFAULT_CAPACITY = 2**31 - 1
#: In a list that may be long only the first wrong item is described: a problem takes far more memory than its item.
Labels = Annotated[tuple[str, ...], Field(fail_fast=True)]


class Budget(Model):
    """The (epsilon, delta) that all releases from one data set may spend together."""

    epsilon: Number = Field(gt=0, le=1000, max_digits=30, description="total epsilon of the data set")
    delta: Number = Field(gt=0, lt=1, max_digits=60, description="total delta of the data set")


class Declaration(Model):
    """The declaration of a data set of any kind."""

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


class Persons(Model):
    """Whom the records of a table belong to: the privacy unit is a person with all of theirs.

    Records of equal text in the column are one person's. Of each person no more than ``max_records`` are kept, so that
    neighbours differ in so many at most.
    """

    column: str = Field(min_length=1, max_length=128, description="the column that says whose record it is")
    max_records: Whole = Field(ge=1, le=1000, description="so many records of a person are kept at most")

    @field_validator("column")
    @classmethod
    def _column(cls, value: str) -> str:
        check_trimmed((value,), "a column's name")
        return value


#: Encodings of text that a file may be in, by the names of Python's codecs.
Encoding = Literal[
    "utf-8",
    "utf-16",
    "latin-1",
    "iso-8859-1",
    "iso-8859-15",
    "cp1252",
    "cp1250",
    "cp1251",
    "mac-roman",
    "gb18030",
    "shift_jis",
    "euc-kr",
    "big5",
]


#: The most bins of an attribute that records of a source are put into by comparisons.
MOST_COMPARED = 4096


def leads_elsewhere(path: str) -> bool:
    """Whether a path is not simply one below a folder."""
    return "\0" in path or any(part in ("", ".", "..") for part in path.split("/"))


class ParquetFiles(Model):
    """Parquet files on the server's own disk, in the place of an upload. They are counted once, at registration, and
    never asked again. ``files`` is of the registration alone: what is kept and shown has the type.
    """

    type: Literal["parquet"]
    files: tuple[Annotated[str, Field(min_length=1, max_length=512)], ...] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="patterns of paths, relative to folders that the operator names",
    )

    @field_validator("files")
    @classmethod
    def _files(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for pattern in value or ():
            if leads_elsewhere(pattern) or "**" in pattern:
                raise ValueError(
                    "a pattern is a path below the server's folders for sources, such as visits/2025-*.parquet: no "
                    'leading "/", no ".", "..", "**" or empty name between two "/"'
                )
        return value


class _VersionedTable(Model):
    """A version of a table on the server's own disk, in the place of an upload: the Parquet files that it is made of.
    All but the type is of the registration alone: what is kept and shown has the type.
    """

    table: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="the table's folder, relative to a folder that the operator names",
    )

    @field_validator("table")
    @classmethod
    def _table(cls, value: str | None) -> str | None:
        if value is not None and (leads_elsewhere(value) or set(value) & set("*?[")):
            raise ValueError(
                "a table is a folder below the server's folders for sources, such as lake/visits: no pattern, no "
                'leading "/", no ".", ".." or empty name between two "/"'
            )
        return value


class DeltaTable(_VersionedTable):
    """A version of a Delta table."""

    type: Literal["delta"]
    version: Whole | None = Field(default=None, ge=0, le=2**53, description="of the table, which is never left")


class IcebergTable(_VersionedTable):
    """A snapshot of an Iceberg table."""

    type: Literal["iceberg"]
    snapshot: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="the number of a snapshot, as text since JSON's numbers have 53 bits, or the name of a tag",
    )


class OutsideTable(Model):
    """A table of a database, in the place of an upload. ``connection`` and ``table`` are of the registration alone:
    what is kept and shown has the type.
    """

    type: str
    connection: str | None = Field(
        default=None, min_length=1, max_length=64, description="name of a connection that an admin has added"
    )
    table: str | None


class PostgresTable(OutsideTable):
    """A table of PostgreSQL."""

    type: Literal["postgresql"]
    table: str | None = Field(
        default=None,
        max_length=127,
        pattern=r"^[^.\x00]{1,63}\.[^.\x00]{1,63}$",
        description="schema and name of a plain table, as clinic.visits",
    )


class SparkTable(OutsideTable):
    """A table of a cluster of Spark."""

    type: Literal["spark"]
    table: str | None = Field(
        default=None,
        max_length=255,
        pattern=r"^[A-Za-z0-9_]{1,127}\.[A-Za-z0-9_]{1,127}$",
        description="schema and name of a table that is kept as Parquet, as health.visits",
    )


class WarehouseTable(OutsideTable):
    """A table of an engine that nobody has tried against a real account."""

    type: Literal["bigquery", "snowflake", "trino"]
    table: str | None = Field(
        default=None,
        max_length=511,
        pattern=r"""^[^.\x00-\x1f"'`\\]{1,255}\.[^.\x00-\x1f"'`\\]{1,255}$""",
        description="schema and name of a plain table, as clinic.visits, without signs that mean something to engines",
    )


#: Where the records of a table are, in the place of an upload.
Source = Annotated[
    ParquetFiles | DeltaTable | IcebergTable | PostgresTable | SparkTable | WarehouseTable,
    Field(discriminator="type"),
]


def elsewhere(source: object) -> str:
    """What to do, in the words of a refusal, with a source whose records cannot be counted where they lie."""
    if isinstance(source, WarehouseTable):
        # It is not read either.
        return "make a table in the warehouse that does without, or copy it to PostgreSQL or Parquet files"
    return "let prepare be vault"


#: The types of those that are files on the server's own disk.
SOURCES_OF_FILES = ("parquet", "delta", "iceberg")
#: Conditions that are written as they are read.
Zero = Annotated[Where, PlainSerializer(written_where)]
#: The most structural zeros of a table.
MOST_ZEROS = 256
_ZERO = re.compile(r"zeros\.[0-9]+")


class TableSpec(Declaration):
    """Records over a product of finite attributes; one axis an attribute, one cell a combination.

    Neighbours differ in one record, or, where a ``unit`` says whose records they are, in all that are kept of one
    person.
    """

    kind: Literal["table"]
    attributes: Annotated[tuple[Attribute, ...], Field(fail_fast=True)] = Field(
        min_length=1, max_length=MOST_ATTRIBUTES
    )
    outside: Literal["refuse", "drop"] = Field(
        default="refuse", description="what becomes of a record with a value outside, where its attribute says nothing"
    )
    capacity: Whole | None = Field(
        default=None, ge=1, le=2**40, description="the most records that there can be; 2^31 - 1 where left out"
    )
    encoding: Encoding | None = Field(default=None, description="of a text file that is not in UTF-8")
    null_values: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] | None = Field(
        default=None, min_length=1, max_length=20, description="what stands in the file for no value, beside nothing"
    )
    unit: Persons | None = Field(default=None, description="whom records belong to; left out: each to somebody else")
    zeros: Annotated[tuple[Zero, ...], Field(fail_fast=True)] | None = Field(
        default=None, min_length=1, max_length=MOST_ZEROS, description="conditions that no record can satisfy"
    )
    source: Source | None = Field(default=None, description="where records are, in the place of an upload")
    prepare: Literal["vault"] | None = Field(
        default=None,
        description="vault: the source's records are read once, as an upload is, and kept; left out: they are counted "
        "where they lie",
    )
    answer_seconds: Whole | None = Field(
        default=None,
        ge=1,
        le=3600,
        description="replies for which a source is asked leave so long after that began, however long it takes; left "
        "out: after whole ticks of the server's",
    )

    @field_validator("null_values")
    @classmethod
    def _null_values(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        check_trimmed(value or (), "null_values: a word")
        return value

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [a.name for a in self.attributes]
        if len(set(names)) != len(names):
            raise ValueError("attribute names must be distinct")
        if sum(a.role == "weight" for a in self.attributes) > 1:
            raise ValueError("role: one attribute at most is the weight: leave role out of the others")
        if self.unit is not None and self.unit.column in names:
            raise ValueError("unit: the column that says whose record it is is no attribute: leave it out there")
        if self.zeros and any(_ZERO.fullmatch(name) for name in (*names, self.unit.column if self.unit else "")):
            raise ValueError("zeros: each is told of by its place, as zeros.0: call no column so")
        for attribute in self.attributes:
            if self.null_values and not set(self.null_values).isdisjoint(map(str, attribute.values or ())):
                raise ValueError(f"null_values: one of them is a declared value of {attribute.name!r} as well")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the records that are read: one an attribute, then the one that says whose each is."""
        own = tuple(attribute.column or attribute.name for attribute in self.attributes)
        return own if self.unit is None else (*own, self.unit.column)

    @model_validator(mode="after")
    def _countable(self) -> Self:
        """Of a source only what is counted where it lies may be declared; of an upload nothing that a source has."""
        if self.source is None:
            if any(attribute.column is not None for attribute in self.attributes):
                raise ValueError("column: an upload's columns are called as their attributes: rename them there")
            if self.prepare is not None:
                raise ValueError("prepare: an upload is read and kept as it is: leave it out, or name a source")
            if self.answer_seconds is not None:
                raise ValueError("answer_seconds: an upload is asked in memory: leave it out, or name a source")
            return self
        if self.prepare is not None:
            if self.encoding is not None:
                raise ValueError("encoding: a source knows its own: leave it out")
            if self.unit is not None and self.unit.column in self.columns[:-1]:
                raise ValueError("unit: the column that says whose record it is is no attribute: leave it out there")
            return self
        beside = {"unit": self.unit, "zeros": self.zeros, "null_values": self.null_values, "encoding": self.encoding}
        if left := [name for name, value in beside.items() if value is not None]:
            way = "leave it out" if left[0] == "encoding" else f"leave it out, or {elsewhere(self.source)}"
            raise ValueError(f"source: records are counted without {left[0]}: {way}")
        if self.outside == "drop" or any(attribute.outside == "drop" for attribute in self.attributes):
            way = elsewhere(self.source)
            raise ValueError(f"source: no record is dropped: let outside be clamp or refuse, or {way}")
        for attribute in self.attributes:
            if problem := _uncountable(attribute):
                raise ValueError(f"source: attribute {attribute.name!r} {problem}, or {elsewhere(self.source)}")
        return self


def _uncountable(attribute: Attribute) -> str | None:
    """What keeps an attribute from being counted where its records lie, and what to do."""
    if attribute.role is not None or attribute.levels is not None:
        return "is counted without role and levels: leave them out"
    if attribute.kind == "numbers" and any(number.denominator != 1 for number in (*attribute.bounds, attribute.step)):
        return "is counted on a grid of integers alone: declare bins or edges without grid"
    if attribute.kind == "bins" and not attribute.unit_bins and attribute.places > MOST_COMPARED:
        return f"is counted in at most {MOST_COMPARED:,} bins or edges: declare fewer"
    return None


def published(spec: Spec) -> Spec:
    """What is kept and shown of a declaration: of a source its type, without names of files, tables and columns."""
    if not isinstance(spec, TableSpec) or spec.source is None:
        return spec
    attributes = tuple(attribute.model_copy(update={"column": None}) for attribute in spec.attributes)
    return spec.model_copy(update={"source": type(spec.source)(type=spec.source.type), "attributes": attributes})


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
    check_trimmed(labels, f"{what}: a label")


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


class _Side(Model):
    """Whose edges they are: the privacy unit is a node of one side with all of its edges.

    Each edge belongs to one such node. Of each no more than ``max_edges`` are kept, so that neighbours differ in so
    many at most.
    """

    max_edges: Whole = Field(ge=1, le=MOST_NODES, description="so many edges of a node are kept at most")


class OneSide(_Side):
    """Nodes of one side of a bipartite graph as the privacy unit."""

    side: Literal["left", "right"] = Field(description="the side whose nodes are protected")


class Sources(_Side):
    """Nodes of a directed graph, each with the edges that leave it, as the privacy unit."""

    side: Literal["source"] = Field(description="the end of an edge that it belongs to")


def _check_most(unit: _Side | None, others: int) -> None:
    """Refuse a cap that no node can pass: noise would be paid for that hides nothing more."""
    if unit is not None and unit.max_edges > others:
        raise ValueError(f"unit.max_edges: a node has at most {others:,} edges: declare no more")


class BipartiteSpec(_GraphDeclaration):
    """A bipartite graph: one axis a side.

    Neighbours differ in one edge, or, where a ``unit`` names a side, in all that are kept of one node of it.
    """

    kind: Literal["bipartite"]
    left: Whole = Field(ge=1, le=MOST_NODES)
    right: Whole = Field(ge=1, le=MOST_NODES)
    left_labels: Labels | None = None
    right_labels: Labels | None = None
    unit: OneSide | None = Field(default=None, description="whose edges they are; left out: an edge is its own")

    @model_validator(mode="after")
    def _labels(self) -> Self:
        _labels_distinct(self.left_labels, self.left, "left_labels")
        _labels_distinct(self.right_labels, self.right, "right_labels")
        if self.unit is not None:
            _check_most(self.unit, self.right if self.unit.side == "left" else self.left)
        return self


class GraphSpec(_GraphDeclaration):
    """A directed or undirected graph on one set of nodes.

    Neighbours differ in one edge, or, where a ``unit`` is declared of a directed graph, in all that are kept of those
    that leave one node.
    """

    kind: Literal["graph"]
    nodes: Whole = Field(ge=2, le=MOST_NODES)
    directed: bool = Field(default=False, strict=True)
    loops: Literal["refuse", "drop"] = "refuse"
    labels: Labels | None = None
    unit: Sources | None = Field(default=None, description="whose edges they are; left out: an edge is its own")

    @model_validator(mode="after")
    def _labels(self) -> Self:
        _labels_distinct(self.labels, self.nodes, "labels")
        if self.unit is not None and not self.directed:
            raise ValueError(
                "unit: an edge of an undirected graph belongs to two nodes, and which of a node's edges are kept would "
                "hang on its neighbours' as well: to keep some of each protects no node with all of its edges. Leave "
                "unit out, or declare the graph directed, or bipartite with the nodes to be protected as one side"
            )
        _check_most(self.unit, self.nodes - 1)
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
        raise InvalidDataset(explain(error, Spec, declared)) from None


def problems_of(declared: Any) -> tuple[Spec | None, list[InvalidDataset]]:
    """Every problem of a declaration, where :func:`parse_spec` tells the first ones, and what is sound of it.

    Args:
        declared: parsed JSON.

    Returns:
        The declaration without what has a problem (another budget stands in for one that has), by which a file can be
        looked at; None where nothing of the kind is left. And the problems, one sentence each; those of an attribute
        name it.
    """
    if not isinstance(declared, dict):
        return None, [InvalidDataset("the spec must be a JSON object")]
    found: list[InvalidDataset] = []
    attributes = declared.get("attributes")
    nothing = False
    if declared.get("kind") == "table" and isinstance(attributes, list) and attributes:
        sound = []
        for place, item in enumerate(attributes[:MOST_ATTRIBUTES]):
            try:
                Attribute.model_validate(item)
            except ValidationError as error:
                name = item.get("name") if isinstance(item, dict) else None
                named = isinstance(name, str) and 0 < len(name) <= 128
                where, fact = (f'attribute "{name}"', {"attribute": name}) if named else (f"attributes.{place}", {})
                found += [
                    InvalidDataset(f"{where}: {problem.removeprefix('body: ')}", **fact)
                    for problem in problems(error, Attribute, item)
                ]
            else:
                sound.append(item)
        if len(attributes) > MOST_ATTRIBUTES:
            found.append(InvalidDataset(f"attributes: a table has at most {MOST_ATTRIBUTES}, not {len(attributes)}"))
        nothing = not sound
        # Something has to stand there for the rest to be looked at.
        declared = {**declared, "attributes": sound or [{"name": "-", "size": 1}]}
        if found:
            # They may be of attributes that are left out.
            declared.pop("zeros", None)
    spec: Spec | None
    try:
        spec = _ADAPTER.validate_python(declared)
    except ValidationError as error:
        found += [InvalidDataset(problem) for problem in problems(error, Spec, declared)]
        spec = _without(declared, error)
    return None if nothing else spec, found


def _without(declared: dict[str, Any], error: ValidationError) -> Spec | None:
    """A declaration without the fields that have a problem; None where there is none without them."""
    wrong = {item["loc"][1] for item in error.errors(include_input=False, include_url=False) if len(item["loc"]) > 1}
    left: dict[str, Any] = {name: value for name, value in declared.items() if name not in wrong}
    if "budget" in wrong:
        left["budget"] = {"epsilon": 1, "delta": 1e-9}
    try:
        return _ADAPTER.validate_python(left)
    except ValidationError:
        return None
