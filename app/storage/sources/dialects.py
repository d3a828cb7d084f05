"""The words of BigQuery, Snowflake and Trino: what :mod:`.compiled` needs to be told of each, and nothing else.

No label is text of a query. A label and what a column holds are compared as hexadecimal digits of their UTF-8: so they
are equal byte by byte, whatever the column's collation says, and there is nothing in them to be quoted. A column's name
is quoted, and is always one that the engine told itself. The other names are of no characters that mean anything
(``WarehouseTable``, ``Place``).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.storage.sources.compiled import Column, Dialect, Kind

#: Hexadecimal digits that are taken of a hash: a number of 60 bits.
_DIGITS = 15


class Warehouse(Dialect):
    """What the engines have in common.

    Args:
        labels: the categories of each axis that has some.

    Attributes:
        hexed: the digits of a text's UTF-8, in capitals.
        hashed: a whole number of :data:`_DIGITS` hexadecimal digits of a text's SHA-256.
        typed: a column's type in the engine's catalogue, in one word.
        kinds: patterns of these types, and what a column of each holds.
    """

    # What divides has an exact quotient, whatever an engine makes of a fraction: Snowflake rounds it to six digits.
    over = "({0} - MOD({0}, {1})) / {1}"
    hexed: str
    hashed: str
    typed: str = "c.data_type"
    kinds: Mapping[str, Kind]

    def __init__(self, labels: Mapping[int, Sequence[str]]) -> None:
        self._labels = {axis: [text.encode().hex().upper() for text in texts] for axis, texts in labels.items()}

    @abstractmethod
    def quoted(self, name: str) -> str:
        """A name as it is."""

    @abstractmethod
    def found(self, text: str, among: str) -> str:
        """The place of a text in a list of texts, which a comma separates; null where it is none of them."""

    def column(self, name: str, type: str) -> Column:
        """A column by its name and type."""
        found = (kind for pattern, kind in self.kinds.items() if re.fullmatch(pattern, type))
        return Column(name, next(found, None))

    def word(self, axis: int, text: str) -> str:
        """By its digits."""
        return self.found(self.hexed.format(text), ",".join(self._labels[axis]))

    def named(self, table: str, columns: Sequence[Column]) -> str:
        """By a query: not every engine renames columns of a table in place."""
        found = [f"{self.quoted(c.name)} AS c{at}" for at, c in enumerate(columns) if c.kind is not None]
        return f"(SELECT {', '.join(found) or '0 AS c'} FROM {table}) AS records"

    def held(self, value: str, low: object, high: object) -> str:
        """Here the least and the greatest of a null and a number are null."""
        return f"COALESCE({super().held(value, low, high)}, {low})"

    def table(self, *names: str) -> str:
        """A table by its database, its schema and its own name."""
        return ".".join(map(self.quoted, names))

    def columns_of(self, database: str, schema: str, name: str) -> str:
        """A query for the names and types of a plain table's columns, in their order."""
        catalogue = f"{self.catalogue(database, schema)}.INFORMATION_SCHEMA"
        return (
            f"SELECT c.column_name, {self.typed} AS type FROM {catalogue}.TABLES AS t JOIN {catalogue}.COLUMNS AS c "
            "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
            f"WHERE t.table_schema = '{schema}' AND t.table_name = '{name}' AND t.table_type = 'BASE TABLE' "
            "ORDER BY c.ordinal_position"
        )

    def catalogue(self, database: str, schema: str) -> str:
        """Where the catalogue of a schema is."""
        return self.quoted(database)

    def sums(self, places: str, axes: int, keys: Sequence[int]) -> str:
        """A query for how many records there are, and for each key the sum of keyed hashes of their places.

        Args:
            places: a query for the places of each record, or why it has none.
            axes: how many places there are.
            keys: whole numbers that nobody else knows.
        """
        text = " || ',' || ".join(f"CAST(p{axis} AS {self.text})" for axis in range(axes))
        hashes = [self.hashed.format(f"'{key},' || {text}") for key in keys]
        asked = ["count(*)", *(f"COALESCE(sum(CAST({each} AS {self.huge})), 0)" for each in hashes)]
        return f"SELECT {', '.join(f'{each} AS n{at}' for at, each in enumerate(asked))} FROM ({places}) AS t"


class BigQuery(Warehouse):
    """GoogleSQL. Integers have 64 bits, and what needs more is an error there. NaN is above and below nothing."""

    real, huge, over, text = "FLOAT64", "BIGNUMERIC", "DIV({}, {})", "STRING"
    hexed = "UPPER(TO_HEX(CAST({} AS BYTES)))"
    hashed = f"CAST(CONCAT('0x', SUBSTR(TO_HEX(SHA256({{}})), 1, {_DIGITS})) AS INT64)"
    kinds: Mapping[str, Kind] = {
        "INT64": "integer",
        "FLOAT64": "float",
        r"STRING(\(\d+\))?": "text",
        "BOOL": "truth",
        "DATE|DATETIME": "time",
    }

    def quoted(self, name: str) -> str:
        """Between backticks, in which a backslash means what it does in text."""
        for sign, told in (("\\", "\\\\"), ("`", "\\`"), ("\n", "\\n"), ("\r", "\\r")):
            name = name.replace(sign, told)
        return f"`{name}`"

    def catalogue(self, database: str, schema: str) -> str:
        """Each schema, a data set there, has its own."""
        return f"{self.quoted(database)}.{self.quoted(schema)}"

    def found(self, text: str, among: str) -> str:
        """By a query within the query: no function tells a place."""
        return f"(SELECT o FROM UNNEST(SPLIT('{among}', ',')) AS l WITH OFFSET AS o WHERE l = {text})"

    def is_nan(self, column: str) -> str:
        """Which equals nothing."""
        return f"IS_NAN({column})"

    def is_infinite(self, column: str) -> str:
        """On either side."""
        return f"IS_INF({column})"

    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """In an array, which begins at one here."""
        return f"[{', '.join(map(str, numbers.tolist()))}][ORDINAL({place} + 1)]"

    def days(self, first: str, date: str) -> str:
        """A difference of dates would be an interval."""
        return f"DATE_DIFF({date}, {first}, DAY)"


class Snowflake(Warehouse):
    """Integers have 38 digits, and ``BIGINT`` is another word for these: what takes more than 64 bits is refused by
    whoever reads it. NaN equals itself, and is above all numbers.
    """

    real, huge = "DOUBLE", "NUMBER(38, 0)"
    hexed = "HEX_ENCODE({})"
    hashed = f"TO_NUMBER(SUBSTR(SHA2({{}}, 256), 1, {_DIGITS}), '{'X' * _DIGITS}')"
    typed = "c.data_type || '(' || COALESCE(CAST(c.numeric_scale AS VARCHAR), '') || ')'"
    kinds: Mapping[str, Kind] = {
        r"NUMBER\(0\)": "integer",
        r"FLOAT\(\)": "float",
        r"TEXT\(\)": "text",
        r"BOOLEAN\(\)": "truth",
        r"(DATE|TIMESTAMP_NTZ)\(\)": "time",
    }

    def quoted(self, name: str) -> str:
        """Between quotation marks, in which a backslash means nothing."""
        return '"' + name.replace('"', '""') + '"'

    def found(self, text: str, among: str) -> str:
        """In a list whose items are of any type."""
        return f"ARRAY_POSITION(CAST({text} AS VARIANT), SPLIT('{among}', ','))"

    def is_nan(self, column: str) -> str:
        """Which equals itself here."""
        return f"{column} = CAST('NaN' AS DOUBLE)"

    def is_infinite(self, column: str) -> str:
        """Above or below all numbers."""
        return f"{column} IN (CAST('inf' AS DOUBLE), CAST('-inf' AS DOUBLE))"

    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """In a list that is written as JSON."""
        return f"CAST(GET(PARSE_JSON('[{','.join(map(str, numbers.tolist()))}]'), {place}) AS BIGINT)"

    def days(self, first: str, date: str) -> str:
        """As a function, which says what is counted."""
        return f"DATEDIFF(day, {first}, {date})"


class Trino(Warehouse):
    """Integers have 64 bits, and what needs more is an error there. NaN is above and below nothing."""

    real, huge = "DOUBLE", "DECIMAL(38, 0)"
    hexed = "to_hex(to_utf8({}))"
    hashed = f"from_base(substr(to_hex(sha256(to_utf8({{}}))), 1, {_DIGITS}), 16)"
    kinds: Mapping[str, Kind] = {
        # A decimal of 18 digits has 64 bits.
        r"tinyint|smallint|integer|bigint|decimal\(([1-9]|1[0-8]),0\)": "integer",
        "real|double": "float",
        r"varchar(\(\d+\))?": "text",
        "boolean": "truth",
        r"date|timestamp\(\d+\)": "time",
    }

    quoted = Snowflake.quoted

    def found(self, text: str, among: str) -> str:
        """In a list that is split once: one that is written out may have 254 items in some versions."""
        return f"(NULLIF(array_position(split('{among}', ','), {text}), 0) - 1)"

    def is_nan(self, column: str) -> str:
        """Which equals nothing."""
        return f"is_nan({column})"

    def is_infinite(self, column: str) -> str:
        """On either side."""
        return f"is_infinite({column})"

    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """In a list that is split once, as that of categories is."""
        return f"CAST(split('{','.join(map(str, numbers.tolist()))}', ',') AS array(bigint))[{place} + 1]"

    def days(self, first: str, date: str) -> str:
        """A difference of dates would be an interval."""
        return f"date_diff('day', {first}, {date})"
