"""What statements are refused for, and where; and that no text, whatever it is, ends in anything but a refusal."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.declarations.spec import parse_spec
from app.spaces.table import table_space
from app.sql.errors import SqlRefused
from app.sql.source import MOST_CHARACTERS, MOST_NESTED, MOST_PARENTHESES
from app.sql.statement import Describe, Select, Shown, ShowTables, translate
from app.sql.table import Table

pytestmark = pytest.mark.unit

SPEC = parse_spec(
    {
        "name": "survey",
        "kind": "table",
        "budget": {"epsilon": 1.0, "delta": 1e-9},
        "unit": {"column": "person", "max_records": 1},
        "attributes": [
            {"name": "sex", "values": ["female", "male"], "missing": True},
            {"name": "age", "lower": 15, "upper": 95, "bins": 16},
            {"name": "code", "size": 9},
            {"name": "hours", "lower": 0, "upper": 80, "grid": 1, "missing": True},
            {"name": "joined", "dates": ["2018-01-01", "2025-12-31"], "by": "month"},
            {"name": "First Name", "values": ["a", "b"]},
        ],
    }
)
TABLE = Table(SPEC, table_space(SPEC))  # type: ignore[arg-type]


def refusal(statement: str) -> SqlRefused:
    with pytest.raises(SqlRefused) as refused:
        translate(statement, TABLE)
    return refused.value


def select(statement: str) -> Select:
    found = translate(statement, TABLE)
    assert isinstance(found, Select)
    return found


#: By statement what the refusal points at, and a part of what it says; {} marks the place.
REFUSED = {
    "SELECT {*} FROM survey": "records are not shown",
    "SELECT COUNT(*) FROM survey WHERE {sex} = TRUE": "sex has not TRUE and FALSE",
    "SELECT COUNT(*) FROM survey WHERE {sex} IS NOT FALSE": "sex has not TRUE and FALSE",
    "SELECT COUNT(*) FROM survey WHERE {sex}": "a column alone is no condition",
    "SELECT COUNT(*) FROM survey WHERE NOT {code} AND 1 = 1": "a column alone is no condition",
    "SELECT {sex} FROM survey": "GROUP BY",
    "SELECT {SUM}(hours) OVER () FROM survey": "windows",
    "SELECT {COUNT}(*) FILTER (WHERE code = 1) FROM survey": "FILTER",
    "SELECT {COUNT}(*) * 2 FROM survey": "arithmetic",
    "SELECT {COUNT}(DISTINCT sex) FROM survey": "DISTINCT",
    "SELECT {SUM}(DISTINCT hours) FROM survey": "DISTINCT",
    "SELECT {VAR_SAMP}(hours) FROM survey": "VAR_POP",
    "SELECT {STDDEV}(hours) FROM survey": "VAR_POP",
    "SELECT {PERCENTILE_CONT}(0.5) WITHIN GROUP (ORDER BY hours) FROM survey": "PERCENTILE_DISC",
    "SELECT {PERCENTILE_DISC}(1.5) WITHIN GROUP (ORDER BY hours) FROM survey": "between 0 and 1",
    "SELECT {MAX}(hours) FROM survey": "PERCENTILE_DISC",
    "SELECT {frobnicate}(hours) FROM survey": "no function",
    "SELECT AVG({code}) FROM survey": "no numbers on a grid",
    "SELECT AVG({ours}) FROM survey": "did you mean 'hours'",
    "SELECT COUNT(*) FROM {surveys}": "called survey",
    "SELECT COUNT(*) FROM survey JOIN {other} ON a = b": "one table",
    "SELECT COUNT(*) FROM survey, {other}": "one table",
    "SELECT COUNT(*) FROM (SELECT {1})": "subqueries",
    "{WITH} a AS (SELECT 1) SELECT COUNT(*) FROM survey": "subqueries",
    "SELECT COUNT(*) FROM survey GROUP BY sex HAVING {COUNT}(*) > 3": "HAVING",
    "SELECT COUNT(*) FROM survey OFFSET {2}": "OFFSET",
    "SELECT sex, COUNT(*) FROM survey GROUP BY ROLLUP ({sex})": "ROLLUP",
    "SELECT sex, COUNT(*) FROM survey GROUP BY DISTINCT {sex}": "DISTINCT",
    "SELECT sex, COUNT(*) FROM survey GROUP BY ALL {sex}": "ALL",
    "SELECT {COUNT}(* EXCLUDE (sex)) FROM survey": "COUNT(*)",
    "SELECT COUNT(*) FROM survey{;} SELECT 2": "several statements",
    "{DROP} TABLE survey": "SHOW TABLES",
    "{INSERT} INTO survey VALUES (1)": "SHOW TABLES",
    "SELECT COUNT(*) FROM survey WHERE\n  {age} BETWEEN 30 AND 64": "say age >= 30 AND age < 65",
    "SELECT COUNT(*) FROM survey WHERE {age} = 31": "say age >= 30 AND age < 35",
    "SELECT COUNT(*) FROM survey WHERE {sex} = 'femal'": "did you mean 'female'",
    "SELECT COUNT(*) FROM survey WHERE {sex} = NULL": "IS NULL",
    "SELECT COUNT(*) FROM survey WHERE {sex} LIKE 'f%'": "list the values",
    "SELECT COUNT(*) FROM survey WHERE {sex} SIMILAR TO 'f%'": "list the values",
    "SELECT {CORR}(hours, code) FROM survey": "vary together",
    "SELECT {CAST}(COUNT(*) AS INT) FROM survey": "round the answer",
    "SELECT {COUNT}(*)::int FROM survey": "CAST is no function",
    "SELECT {TRY_CAST}(COUNT(*) AS INT) FROM survey": "TRY_CAST is no function",
    "SELECT COUNT(*) FROM survey WHERE sex = 'top' AND {(}": "cannot be read",
    "SELECT {ROUND}(AVG(hours), 2) FROM survey": "round the answer",
    "SELECT {SUM}(hours) / COUNT(*) FROM survey": "AVG",
    "SELECT {APPROX_COUNT_DISTINCT}(code) FROM survey": "APPROX_COUNT_DISTINCT is no function",
    "SELECT SUM({CASE} WHEN code = 1 THEN 1 ELSE 0 END) FROM survey": "WHERE",
    "SELECT AVG({GREATEST}(0, hours)) FROM survey": "declared",
    "SELECT AVG({hours} * 52) FROM survey": "compute with the answer",
    "SELECT {COALESCE}(sex, 'none'), COUNT(*) FROM survey GROUP BY 1": "without a value",
    "SELECT {TOP} 5 sex, COUNT(*) FROM survey GROUP BY sex": "LIMIT",
    "SELECT AVG(hours {CLAMPED} BETWEEN 0 AND 40) FROM survey": "declared",
    "SELECT AVG(hours, {contribution_bounds_per_group} => (0, 40)) FROM survey": "declared",
    "SELECT COUNT(*) FROM survey WHERE hours > {code}": "two columns",
    "SELECT COUNT(*) FROM survey WHERE hours IN (SELECT {1})": "list the values",
    "SELECT COUNT(*) FROM survey WHERE {hours} > 100": "whatever the data",
    "SELECT COUNT(*) FROM survey WHERE {joined} = DATE '2020-02-03'": "would cut a month",
    "SELECT COUNT(*) FROM survey WHERE {hours} BETWEEN SYMMETRIC 5 AND 3": "SYMMETRIC",
    "SELECT COUNT(*) FROM survey LIMIT -{1}": "whole number",
    "SELECT COUNT(*) FROM survey WHERE hours < {1e999}": "2^53",
    "SELECT sex, code, sex, COUNT(*) FROM survey GROUP BY sex, code, {1}": "twice",
    "SELECT COUNT(*) FROM survey GROUP BY {9}": "number",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({delta} = 1e-6) COUNT(*) FROM survey": "data set's",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = {'x'}) COUNT(*) FROM survey": "above zero",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column = {sex}) COUNT(*) FROM survey": "person",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(within = 1, {within} = 2) COUNT(*) FROM survey": "twice",
    "SELECT DP_INTERVAL_LOW({n}) FROM survey": "COUNT(*) AS n",
    "SELECT COUNT(* {FROM} survey": "cannot be read",
    "SHOW {COLUMNS}": "SHOW TABLES",
    "DESCRIBE {other}": "called survey",
    "SELECT COUNT(*), {1} AS x FROM survey": "cannot be selected",
    "SELECT COUNT(*) FROM survey AS {s}(a)": "columns keep their names",
    "SELECT COUNT(*) FROM survey WHERE {code} IN (NULL)": "whatever the data",
    "SELECT 1, {sex}": "no table is asked",
    "SELECT COUNT(*) FROM survey WHERE joined >= DATE(DATE(DATE(DATE(DATE{(}1)))))": "names of types",
}


@pytest.mark.parametrize("marked", REFUSED)
def test_a_refusal_says_where_and_what_to_do(marked: str) -> None:
    """Would catch a construct that is passed over, a refusal without the way on, and one that points elsewhere."""
    begin, end = marked.index("{"), marked.index("}") - 1
    statement = marked.replace("{", "").replace("}", "")
    refused = refusal(statement)
    assert REFUSED[marked] in refused.detail
    near = statement[begin:end]
    line = statement[:begin].count("\n") + 1
    column = begin - (statement[:begin].rfind("\n") + 1) + 1
    told = refused.extra
    assert (told["line"], told["column"], told["length"], told["near"]) == (line, column, len(near), near)
    assert refused.detail.startswith(f"line {line}, column {column}: ")


def test_places_stay_true_behind_what_is_blanked_out() -> None:
    """Would catch EXPLAIN and OPTIONS that are cut out, so that all behind them seems to stand further left."""
    statement = "EXPLAIN\nSELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.1)\n  COUNT(*), AVG(ours) FROM survey"
    told = refusal(statement).extra
    assert (told["line"], told["column"], told["near"]) == (3, 17, "ours")


@pytest.mark.parametrize("deep", ["NOT " * 2400 + "code = 1", "- " * 4000 + "1 = code", "[" * 4000, "CASE " * 1500])
def test_what_is_nested_too_deep_is_refused(deep: str) -> None:
    """Would catch a parser that ends in a RecursionError."""
    assert refusal(f"SELECT COUNT(*) FROM survey WHERE {deep}")


def test_limits() -> None:
    """Would catch a limit that is not kept, and one that refuses what it should take."""
    rest = "SELECT COUNT(*) FROM survey WHERE "
    deep = "(" * MOST_NESTED + "code = 1" + ")" * MOST_NESTED
    assert select(rest + deep).questions == ({"type": "predicate", "where": {"code": 1}},)
    assert "30 deep" in refusal(f"{rest}({deep})").detail
    many = " AND ".join(["(code = 1)"] * (MOST_PARENTHESES - 1))
    assert select(rest + many)
    assert "200 parentheses" in refusal(f"{rest}({many})").detail
    long = rest + " OR ".join(f"code = {k % 9}" for k in range(500))
    assert "256 conditions" in refusal(long).detail
    padded = rest + "code = 1" + " " * (MOST_CHARACTERS - len(rest) - 8)
    assert select(padded)
    assert "10,000 characters" in refusal(padded + " ").detail
    eight = ", ".join(f"COUNT(*) AS c{k}" for k in range(8))
    assert len(select(f"SELECT {eight} FROM survey").questions) == 1
    assert "at most 8 aggregates" in refusal(f"SELECT {eight}, AVG(hours) FROM survey").detail


def test_statements_that_need_no_data() -> None:
    """Would catch a probe of tools that is refused or that asks, and a statement that wants rows taken for one."""

    def shown(statement: str) -> tuple[list[str], list[str], tuple[tuple[object, ...], ...]]:
        found = translate(statement, TABLE)
        assert isinstance(found, Shown)
        return [column.name for column in found.columns], [column.type for column in found.columns], found.rows

    assert shown("SELECT 1") == (["column"], ["integer"], ((1,),))
    assert shown("SELECT 1 AS a, 'x' AS b, NULL, TRUE;") == (
        ["a", "b", "column", "column_2"],
        ["integer", "text", "text", "boolean"],
        ((1, "x", None, True),),
    )
    assert shown("SELECT 1 LIMIT 0")[2] == ()
    every = ["sex", "age", "code", "hours", "joined", "First Name"]
    kinds = ["text", "text", "integer", "integer", "text", "text"]
    for statement in (
        "SELECT * FROM survey LIMIT 0",
        "SELECT s.* FROM survey s WHERE 1 = 0",
        "SELECT * FROM survey WHERE FALSE",
    ):
        assert shown(statement) == (every, kinds, ())
    assert shown('SELECT "First Name" AS n, code FROM survey LIMIT 0')[0] == ["n", "code"]
    names = ["sex", "count", "count_se", "count_low", "count_high"]
    assert shown("SELECT sex, COUNT(*) FROM survey GROUP BY sex LIMIT 0")[0] == names
    for statement in (
        "SELECT * FROM survey LIMIT 1",
        "SELECT * FROM survey WHERE 1 = 1",
        "SELECT * FROM surveys LIMIT 0",
        "SELECT ours FROM survey LIMIT 0",
        "SELECT COUNT(*) FROM survey WHERE 1 = 0",
        "SELECT * FROM survey JOIN other ON TRUE LIMIT 0",
    ):
        assert refusal(statement).extra["hint"]


def test_names() -> None:
    """Would catch quotes that are no part of names and letters that count where PostgreSQL does not tell them apart."""
    assert select('SELECT s."First Name", count(*) FROM SURVEY s GROUP BY 1').questions == (
        {"type": "marginal", "attributes": ["First Name"]},
    )
    assert "no column 'SEX'" in refusal('SELECT COUNT("SEX") FROM survey').detail
    assert select("SELECT COUNT(SEX) FROM public.Survey").questions
    assert select("SELECT survey.survey.sex, COUNT(*) FROM survey.survey GROUP BY sex").questions
    assert "name alone" in refusal("SELECT COUNT(*) FROM other.survey").detail


def test_statements_that_ask_nothing() -> None:
    """Would catch a semicolon, a comment or small letters that make another statement of them."""
    assert translate("show tables;", TABLE) == ShowTables()
    assert translate("-- all of it\nDescribe survey ;", TABLE) == Describe()


def test_a_person_is_a_record_where_each_has_one() -> None:
    """Would catch a count of persons that is none."""
    assert select("SELECT COUNT(DISTINCT person) FROM survey").questions == ({"type": "predicate", "where": {}},)
    assert SPEC.kind == "table"
    assert SPEC.unit is not None
    more = SPEC.model_copy(update={"unit": SPEC.unit.model_copy(update={"max_records": 3})})
    with pytest.raises(SqlRefused, match="may have 3"):
        translate("SELECT COUNT(DISTINCT person) FROM survey", Table(more, TABLE.space))


_WORDS = st.sampled_from(
    [
        "SELECT",
        "FROM",
        "survey",
        "WHERE",
        "GROUP",
        "BY",
        "ORDER",
        "LIMIT",
        "COUNT",
        "(",
        ")",
        "*",
        ",",
        ";",
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "IS",
        "NULL",
        "sex",
        "age",
        "code",
        "hours",
        "joined\n",
        "",
        "",
        "",
        "=",
        "<",
        ">=",
        "<>",
        "1",
        "-3",
        "0.5",
        "'female'",
        "'a''b'",
        "DATE",
        "'2020-01-01'",
        '"First',
        'Name"',
        "AVG",
        "SUM",
        "MEDIAN",
        "PERCENTILE_DISC",
        "WITHIN",
        "ARRAY",
        "[",
        "]",
        "EXPLAIN\n",
        "",
        "",
        "",
        "OPTIONS",
        "DIFFERENTIAL_PRIVACY",
        "WITH",
        "epsilon",
        "DP_INTERVAL_LOW",
        "FLOOR",
        "/",
        "BIN",
        "DATE_TRUNC",
        "AS",
        "n",
        "CASE",
        "WHEN",
        "END",
        "DISTINCT",
        "::",
        "$$",
        "--",
        "/*",
        "*/\n",
        "",
        "",
        "",
        "\n",
        "\t",
        "ü",
        "\u2028",
        "\x00",
        "😀",
        "?",
        ":a",
        "@b",
        "#",
        "|",
        "||",
        "~",
        "!",
        "%",
        "^",
        "&",
        "{",
        "}",
        "\\",
        "`",
        "1e400",
        "0x1F",
        "E'\\n'",
        "U&'x'",
        "JOIN",
        "UNION",
        "HAVING",
        "OVER",
        "SHOW",
        "DESCRIBE",
    ]
)


@given(st.one_of(st.text(max_size=80), st.lists(_WORDS, max_size=30).map(" ".join)), st.booleans())
@example("\ud800", False)
@example("SELECT COUNT(*) FROM survey WHERE joined > '9999-12-31'", False)
@example("EXPLAIN", False)
@example("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(", False)
@example("EXPLAIN EXPLAIN SELECT COUNT(*) FROM survey", False)
def test_any_text_is_a_statement_or_refused(text: str, behind: bool) -> None:
    """Would catch any other exception: a 500 for whoever makes a mistake."""
    told = None
    try:
        translate(("SELECT COUNT(*) FROM survey WHERE " if behind else "") + text, TABLE)
    except SqlRefused as refused:
        told = refused
    if told is not None:
        assert told.detail.startswith(f"line {told.extra['line']}, column {told.extra['column']}: ")
