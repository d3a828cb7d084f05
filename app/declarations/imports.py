"""Declarations from elsewhere: what SmartNoise and CSVW documents say of a table, as the draft of a declaration.

Two formats are known. Metadata of SmartNoise SQL (YAML: a database of schemas of tables of columns; or one table with
its ``columns`` apart, as Lomas wrote it), and of CSV on the Web (JSON-LD: a ``tableSchema``, with the terms that Lomas
adds for differential privacy, under whichever prefix). What has no counterpart is told in notes. A column of which a
document tells too little comes out as an attribute with nothing but its name, which a draft completes from the file.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Literal

import yaml

from app.declarations.drafts import MOST_DAYS, Draft, name_of, numeric, plain
from app.declarations.errors import InvalidDataset

#: Bytes and values of a YAML document: it takes a hundred times as long to read as JSON.
MOST_YAML_BYTES, MOST_YAML_VALUES = 1 << 18, 20_000
#: Columns of a foreign table.
MOST_COLUMNS = 1000
#: Notes of a document; of more their number is told.
MOST_NOTES = 200

Format = Literal["smartnoise", "csvw"]

# ------------------------------------------------------------------------------------------------------- YAML


class _Loader(yaml.SafeLoader):
    """Reads mappings whose keys differ."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(made) < len(node.value):
            raise InvalidDataset(f"the YAML has two keys of one name below line {node.start_mark.line + 1}: keep one")
        return made


def parse_yaml(text: str, depth: int) -> Any:
    """The document of a YAML text as parsed JSON would be: keys are strings, dates and times ISO strings.

    Anchors, aliases and tags are refused: a declaration needs none, and a few bytes of them stand for gigabytes.

    Args:
        text: one document.
        depth: levels that it may be nested.

    Raises:
        InvalidDataset: when it is none, too large, nested too deep, or has what is refused.
    """
    if len(text.encode()) > MOST_YAML_BYTES:
        raise InvalidDataset(f"the YAML has more than {MOST_YAML_BYTES:,} bytes: send JSON")
    try:
        _look_through(text, depth)
        return _as_json(yaml.load(text, _Loader))  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        where = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidDataset(f"the spec is neither JSON nor YAML{where}") from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, RecursionError):
        # Such as a date in a month 13, a key that is a list, or a character that is none.
        raise InvalidDataset("the spec is neither JSON nor YAML: a value in it cannot be read") from None


def _look_through(text: str, depth: int) -> None:
    """Refuse what must not be built, before anything is."""
    level = values = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise InvalidDataset("the YAML has anchors or aliases: write out what they stand for")
        if getattr(event, "tag", None) is not None:
            raise InvalidDataset("the YAML has tags: write plain values")
        values += isinstance(event, yaml.NodeEvent)
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > depth:
            raise InvalidDataset(f"the YAML is nested deeper than {depth} levels")
        if values > MOST_YAML_VALUES:
            raise InvalidDataset(f"the YAML has more than {MOST_YAML_VALUES:,} values: send JSON")


def _as_json(node: Any) -> Any:
    if isinstance(node, dict):
        return {_key(key): _as_json(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_as_json(item) for item in node]
    if isinstance(node, datetime.date):
        return node.isoformat()
    if isinstance(node, int) and not isinstance(node, bool) and abs(node) > 2**53:
        raise ValueError
    if isinstance(node, float) and not math.isfinite(node):
        raise ValueError
    return node


def _key(key: Any) -> str:
    if isinstance(key, bool):
        raise InvalidDataset("yes, no, on, off, true and false are no names in YAML: put quotes around them")
    if isinstance(key, str | int | float | datetime.date):
        return str(key)
    raise ValueError


# ---------------------------------------------------------------------------------------------------- formats


def format_of(document: Any) -> Format | None:
    """The format that a document is of; None for one of this project's own, or of none."""
    if not isinstance(document, Mapping):
        return None
    terms = {_local(name): value for name, value in document.items()}
    if "tableSchema" in terms or isinstance(terms.get("tables"), list):
        return "csvw"
    if isinstance(document.get("columns"), Mapping) and not terms.keys() & {"kind", "attributes"}:
        return "smartnoise"
    databases = [value for name, value in document.items() if name != "engine"]
    return "smartnoise" if databases and all(_of_tables(database) for database in databases) else None


def _of_tables(database: Any) -> bool:
    """Whether it is a mapping of mappings of mappings."""
    return (
        isinstance(database, Mapping)
        and bool(database)
        and all(
            isinstance(schema, Mapping)
            and bool(schema)
            and all(isinstance(table, Mapping) for table in schema.values())
            for schema in database.values()
        )
    )


def imported(document: Mapping[str, Any], table: str | None, columns: Sequence[str]) -> Draft:
    """The table that a foreign document describes.

    Args:
        document: of a format that :func:`format_of` knows.
        table: which of its tables; None where there is one.
        columns: names of the columns of the file, which tell which of a column's titles is its name there.

    Raises:
        InvalidDataset: when the document contradicts its format, or has several tables and none is named.
    """
    found = _csvw(document, table, columns) if format_of(document) == "csvw" else _smartnoise(document, table)
    notes = found.notes
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES:,} more that was not mapped"]
    return Draft(found.spec, tuple(notes))


@dataclass(slots=True)
class _Found:
    """A declaration that grows with what is read."""

    spec: dict[str, Any] = field(default_factory=lambda: {"kind": "table"})
    notes: list[str] = field(default_factory=list)

    def unmapped(self, where: str, names: Iterator[str]) -> None:
        """Tell of what has no counterpart."""
        told = ", ".join(_short(name) for name in names)
        if told:
            self.notes.append(f"{where}not mapped: {told}")

    def unit(self, people: Sequence[str], most: Any, row_privacy: bool) -> None:
        """The privacy unit: who is told apart by a column, with so many records at most."""
        if not people:
            if not row_privacy and type(most) is int and most > 1:
                self.notes.append(
                    f"somebody may have {most} records, but no column says whose: declare a unit, or protect records"
                )
            return
        if len(people) > 1:
            self.notes.append(
                f"{', '.join(map(_short, people))}: a unit is told by one column: declare which, or join them"
            )
            return
        if row_privacy:
            self.notes.append(f'column "{_short(people[0])}" tells people apart, but records are what is protected')
            return
        most = 1 if most is None else most
        if type(most) is not int or most < 1:
            raise InvalidDataset("the most records of a person must be a whole number from 1")
        self.spec["unit"] = {"column": people[0], "max_records": most}


def _short(name: Any) -> str:
    text = str(name)
    return text if len(text) <= 64 else text[:64] + "..."


def _chosen(tables: Mapping[str, Any], table: str | None) -> tuple[str, Any]:
    """The table that is meant."""
    names = ", ".join(map(_short, [*tables][:20]))
    if table is not None:
        found = [name for name in tables if table in (name, name.rpartition(".")[2])]
        if len(found) != 1:
            raise InvalidDataset(f"table: the document has {'several' if found else 'none'} of this name: {names}")
        return found[0], tables[found[0]]
    if len(tables) != 1:
        raise InvalidDataset(f"the document has {len(tables)} tables: name one of {names}" if tables else "no tables")
    return next(iter(tables.items()))


# ------------------------------------------------------------------------------------------------- SmartNoise

_TABLE_WORDS = {
    "max_ids",
    "row_privacy",
    "rows",
    "rows_exact",
    "sample_max_ids",
    "censor_dims",
    "clamp_counts",
    "clamp_columns",
    "use_dpsu",
}
_COLUMN_WORDS = {
    "name",
    "type",
    "private_id",
    "lower",
    "upper",
    "nullable",
    "missing_value",
    "cardinality",
    "categories",
    "precision",
}
_QUOTES = re.compile(r'"(.+)"|`(.+)`|\[(.+)\]')


def _smartnoise(document: Mapping[str, Any], table: str | None) -> _Found:
    if isinstance(document.get("columns"), Mapping):
        if table is not None:
            raise InvalidDataset("table: the document has one table, without a name")
        name, properties, columns = "", document, document["columns"]
        own = {"columns"}
        # Lomas takes columns to be full where it is not said otherwise, SmartNoise to be not.
        nullable = False
    else:
        tables = {
            f"{schema}.{name}" if schema else str(name): properties
            for word, database in document.items()
            if word != "engine"
            for schema, inner in database.items()
            for name, properties in inner.items()
        }
        name, properties = _chosen(tables, table)
        columns = {word: value for word, value in properties.items() if word not in _TABLE_WORDS}
        own = set(columns)
        nullable = True
    found = _Found()
    if name:
        found.spec["name"] = name_of(_unquoted(name.rpartition(".")[2]))
    _check_count(columns)
    used = {"max_ids", "row_privacy", "clamp_columns", "rows", "rows_exact"}
    found.unmapped("", (word for word in properties if word not in own and word not in used))
    if properties.get("rows") is not None or properties.get("rows_exact") is not None:
        found.notes.append(
            "rows: not mapped. Declare records_public if the number of records may be known to everybody"
        )
    clamps = properties.get("clamp_columns", True) is not False
    attributes, people = [], []
    for word, column in columns.items():
        if not isinstance(column, Mapping):
            found.notes.append(f"{_short(word)}: not mapped")
            continue
        column_name = _unquoted(word)
        where = f'column "{_short(column_name)}": '
        found.unmapped(where, (w for w in column if w not in _COLUMN_WORDS))
        if column.get("private_id") is True:
            people.append(column_name)
            continue
        made = _typed(
            found,
            column_name,
            str(column.get("type", "")).lower(),
            lower=column.get("lower"),
            upper=column.get("upper"),
            categories=column.get("categories"),
        )
        if made is None:
            continue
        if made.keys() & {"lower", "dates"} and clamps:
            made["outside"] = "clamp"
        if column.get("missing_value") is not None:
            found.notes.append(f"{where}missing_value is not mapped: write it into the file, or count it as missing")
        if column.get("nullable", nullable) is not False:
            made["missing"] = True
        attributes.append(made)
    found.spec["attributes"] = attributes
    found.unit(people, properties.get("max_ids"), properties.get("row_privacy") is True)
    return found


def _unquoted(name: str) -> str:
    quoted = _QUOTES.fullmatch(name)
    return next(part for part in quoted.groups() if part) if quoted else name


def _check_count(columns: Sequence[Any] | Mapping[str, Any]) -> None:
    if len(columns) > MOST_COLUMNS:
        raise InvalidDataset(f"the document has more than {MOST_COLUMNS:,} columns")


# ------------------------------------------------------------------------------------------------------- CSVW

_WHOLE = {
    "int",
    "integer",
    "long",
    "short",
    "byte",
    "nonNegativeInteger",
    "positiveInteger",
    "nonPositiveInteger",
    "negativeInteger",
    "unsignedInt",
    "unsignedLong",
    "unsignedShort",
    "unsignedByte",
}
_REAL = {"float", "double", "number", "decimal"}
_DATE = {"date", "dateTime", "datetime", "dateTimeStamp"}
#: Where the versions of the vocabulary list the values of a column, each in words of its own.
_LISTS = ("keyValues", "keys", "publicKeys", "publicKeysValues", "partitions", "publicPartitions")
#: Terms that are mapped, or of which nothing is lost: they say nothing of the data, or the same in other words.
_CSVW_COLUMN = {
    "name",
    "titles",
    "datatype",
    "required",
    "nullableProportion",
    "privacyId",
    "minimum",
    "maximum",
    "virtual",
    "separator",
    *_LISTS,
    "exhaustiveKeys",
    "exhaustivePartitions",
    "propertyUrl",
    "type",
    "@type",
    "@id",
    "description",
    "suppressOutput",
    "maxNumPartitions",
}
_CSVW_TABLE = {
    "@context",
    "@type",
    "@id",
    "url",
    "name",
    "title",
    "tableSchema",
    "privacyUnit",
    "maxContributions",
    "description",
    "tables",
}


def _local(name: str) -> str:
    """A term without its prefix, which differs from one version of a vocabulary to the next."""
    return name if name.startswith("@") else name.rpartition(":")[2].rpartition(".")[2]


def _terms(node: Any, what: str) -> dict[str, Any]:
    """A node's members by their local names."""
    if not isinstance(node, Mapping):
        raise InvalidDataset(f"{what} must be an object")
    made = {_local(name): value for name, value in node.items()}
    if len(made) < len(node):
        raise InvalidDataset(f"{what} has two terms of one name, under different prefixes: keep one")
    return made


def _csvw(document: Mapping[str, Any], table: str | None, columns: Sequence[str]) -> _Found:
    top = _terms(document, "the document")
    tables = top.get("tables", [document])
    if not isinstance(tables, list):
        raise InvalidDataset("tables must be a list")
    by_name: dict[str, Any] = {}
    for place, node in enumerate(tables[: MOST_COLUMNS + 1]):
        terms = _terms(node, "a table")
        name = terms.get("name") or PurePosixPath(str(terms.get("url") or "")).stem or f"table {place + 1}"
        if str(name) in by_name:
            raise InvalidDataset("two tables of the document have one name: name them apart")
        by_name[str(name)] = terms
    if len(tables) == 1 and table is None:
        name, terms = next(iter(by_name.items()))
    else:
        name, terms = _chosen(by_name, table)
    # A group's schema holds for its tables that have none.
    schema = _terms(terms.get("tableSchema", top.get("tableSchema")), "tableSchema")
    nodes = schema.get("columns", [])
    if not isinstance(nodes, list):
        raise InvalidDataset("columns must be a list")
    _check_count(nodes)
    found = _Found()
    if terms.get("name") or terms.get("url"):
        found.spec["name"] = name_of(name)
    if isinstance(terms.get("description"), str):
        found.spec["description"] = terms["description"][:2000]
    found.unmapped("", (word for word in terms if word not in _CSVW_TABLE))
    found.unmapped("tableSchema: ", (word for word in schema if word not in ("columns", "@type", "@id")))
    attributes, people = [], []
    for place, node in enumerate(nodes):
        column = _terms(node, f"column {place + 1}")
        column_name = _title(column, place, columns)
        where = f'column "{_short(column_name)}": '
        found.unmapped(where, (word for word in column if word not in _CSVW_COLUMN))
        if column.get("privacyId") is True or column_name == terms.get("privacyUnit"):
            people.append(column_name)
        elif column.get("virtual") is True:
            found.notes.append(f"{where}left out: it is virtual, no file has it")
        elif column.get("separator") is not None:
            found.notes.append(f"{where}left out: its cells are lists")
        else:
            made = _csvw_attribute(found, column_name, column)
            if made is not None:
                attributes.append(made)
    unit = terms.get("privacyUnit")
    if isinstance(unit, str) and unit not in people:
        people.append(unit)
    found.spec["attributes"] = attributes
    found.unit(people, terms.get("maxContributions"), row_privacy=False)
    return found


def _title(column: Mapping[str, Any], place: int, columns: Sequence[str]) -> str:
    """The file's name of a column: that one of its titles and its name which the file has."""
    titles = column.get("titles", [])
    if isinstance(titles, Mapping):
        # By language; each may have several.
        titles = [title for inner in titles.values() for title in (inner if isinstance(inner, list) else [inner])]
    elif not isinstance(titles, list):
        titles = [titles]
    known = [title for title in [*titles, column.get("name")] if isinstance(title, str) and title]
    if not known:
        raise InvalidDataset(f"column {place + 1} has neither name nor titles")
    return next((title for title in known if title in columns), known[0])


def _csvw_attribute(found: _Found, name: str, column: Mapping[str, Any]) -> dict[str, Any] | None:
    where = f'column "{_short(name)}": '
    datatype = column.get("datatype", "string")
    facets = _terms(datatype, "datatype") if isinstance(datatype, Mapping) else {"base": datatype}
    base = _local(str(facets.get("base", "string")))
    lower, upper = (
        column.get(word, facets.get(word, facets.get(inclusive)))
        for word, inclusive in (("minimum", "minInclusive"), ("maximum", "maxInclusive"))
    )
    known = {"base", "minimum", "maximum", "minInclusive", "maxInclusive", "@id", "name"}
    found.unmapped(where + "datatype: ", (word for word in facets if word not in known))
    kind = "int" if base in _WHOLE else "float" if base in _REAL else "datetime" if base in _DATE else base
    exhaustive = column.get("exhaustiveKeys", column.get("exhaustivePartitions", True)) is not False
    listed = next((column[word] for word in _LISTS if column.get(word)), None)
    if listed is not None and not exhaustive:
        found.notes.append(f"{where}its list of values is not exhaustive: the categories are drafted from the file")
        listed = None
    categories, edges = _partitions(listed) if isinstance(listed, list) else (None, None)
    if listed is not None and categories is None and edges is None:
        found.notes.append(f"{where}its partitions are not mapped")
    made = _typed(found, name, kind, lower=lower, upper=upper, categories=categories, edges=edges)
    if made is None:
        return None
    proportion = column.get("nullableProportion")
    full = column["required"] is True if column.get("required") is not None else proportion == 0
    if not full:
        made["missing"] = True
    return made


def _partitions(listed: list[Any]) -> tuple[list[Any] | None, list[Any] | None]:
    """The categories that partitions stand for, or the edges of bins; neither where they are of another kind."""
    values, bounds = [], []
    for item in listed:
        if isinstance(item, str | int | float) and not isinstance(item, bool):
            values.append(item)
            continue
        if not isinstance(item, Mapping):
            return None, None
        terms = {_local(word): value for word, value in item.items()}
        inner = terms.get("predicate")
        if isinstance(inner, Mapping):
            terms |= {_local(word): value for word, value in inner.items()}
        if terms.get("partitionValue") is not None:
            values.append(terms["partitionValue"])
        else:
            bounds.append((_fraction(terms.get("lowerBound")), _fraction(terms.get("upperBound"))))
    if not bounds:
        return values, None
    low_ends, high_ends = (
        [low for low, _ in bounds if low is not None],
        [high for _, high in bounds if high is not None],
    )
    if values or len(low_ends) + len(high_ends) < 2 * len(bounds) or high_ends[:-1] != low_ends[1:]:
        return None, None
    return None, [plain(edge) for edge in [*low_ends, high_ends[-1]]]


# ------------------------------------------------------------------------------------------------ either format


def _typed(
    found: _Found,
    name: str,
    kind: str,
    *,
    lower: Any,
    upper: Any,
    categories: Any,
    edges: list[Any] | None = None,
) -> dict[str, Any] | None:
    """An attribute of what is said of a column; of nothing but its name where the file has to tell the rest."""
    where = f'column "{_short(name)}": '
    if kind == "unknown":
        found.notes.append(f"{where}left out: its type is unknown")
        return None
    if categories is not None:
        values = _categories(categories)
        if values is not None:
            return {"name": name, "values": values}
        found.notes.append(
            f"{where}its categories are not mapped: they must be texts or whole numbers, in quotes if need be"
        )
    if kind in ("int", "float"):
        return {"name": name, **_numbers(found, where, kind, lower, upper, edges)}
    if kind == "datetime":
        return {"name": name, **_dates(found, where, lower, upper)}
    if lower is not None or upper is not None:
        found.notes.append(f"{where}bounds of texts are not mapped")
    if kind == "boolean":
        found.notes.append(f"{where}Booleans are spelled as in the file")
    else:
        found.notes.append(f"{where}the document names no categories: they are drafted from the file")
    return {"name": name}


def _categories(categories: Any) -> list[Any] | None:
    if not isinstance(categories, list) or not categories:
        return None
    plain = [plain(Fraction(v)) if isinstance(v, float) and v.is_integer() else v for v in categories]
    return plain if all(isinstance(v, str | int) and not isinstance(v, bool) for v in plain) else None


def _numbers(found: _Found, where: str, kind: str, lower: Any, upper: Any, edges: list[Any] | None) -> dict[str, Any]:
    if edges is not None:
        return {"edges": edges}
    low, high = _fraction(lower), _fraction(upper)
    if low is None or high is None:
        found.notes.append(f"{where}the document has no two bounds that are numbers: they are drafted from the file")
        return {}
    if kind == "int":
        # Bounds of integers that are none bound the integers between them.
        low, high = Fraction(math.ceil(low)), Fraction(math.floor(high))
    if low >= high:
        # Left as it is, to be refused with everything else that is wrong.
        return {"lower": plain(low), "upper": plain(high)}
    fields, notes = numeric(low, high, Fraction(1) if kind == "int" else None)
    found.notes += [where + note for note in notes]
    return fields


def _dates(found: _Found, where: str, lower: Any, upper: Any) -> dict[str, Any]:
    try:
        first, last = (datetime.date.fromisoformat(str(bound)[: len("2020-01-31")]) for bound in (lower, upper))
    except ValueError:
        found.notes.append(f"{where}the document has no two bounds that are dates: they are drafted from the file")
        return {}
    by = "day" if (last - first).days <= MOST_DAYS else "month"
    found.notes.append(f"{where}dates are told apart by {by}: declare another if it suits better")
    return {"dates": [first.isoformat(), last.isoformat()], "by": by}


def _fraction(value: Any) -> Fraction | None:
    """A finite number, written as such or as a text, as CSVW may have it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 40:
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return Fraction(number) if number.is_finite() and abs(number.adjusted()) < 300 else None
