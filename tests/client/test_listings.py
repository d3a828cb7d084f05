"""Tables of the command line: nothing is lost in them, whatever the terminal's width."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from app.cli import rendering
from app.cli.listings import Column, columns, facts, folded, listed
from curator_client.results import SqlResult

pytestmark = pytest.mark.unit

WORDS = st.text(alphabet="abcde,\"'äß日本", min_size=1, max_size=40)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)
NUMBERS = st.floats(-1e12, 1e12).map(lambda number: f"{number:,.6g} ± 12")
IDS = st.text(alphabet="0123456789abcdef", min_size=32, max_size=32)
WIDTHS = st.integers(60, 160)
HEAD = [Column("id", whole=True), Column("label"), Column("count", number=True, whole=True), Column("by\nwhom")]
ROWS = st.lists(st.tuples(IDS, TEXTS, NUMBERS, TEXTS), min_size=1, max_size=5)


def characters(*texts: str) -> Counter[str]:
    return Counter("".join("".join(texts).split()))


@given(rows=ROWS, width=WIDTHS)
def test_no_cell_loses_a_character_and_no_line_is_wider(rows: list[tuple[str, str, str, str]], width: int) -> None:
    """Would catch a label that is cut, a line that the terminal would break anew, and an id or a number in pieces. The
    oracle counts characters and knows nothing of columns."""
    lines = listed(HEAD, rows, width)
    assert max(map(cell_len, lines)) <= width
    rule = next(line for line in lines if set(line) == {"─"})
    assert characters(*lines) - characters(rule) == characters(
        *(cell for row in rows for cell in row), "idlabelcountbywhom"
    )
    for id, _, number, _ in rows:
        assert any(id in line for line in lines)
        assert any(number in line for line in lines)


@given(found=st.lists(st.tuples(WORDS, TEXTS), min_size=1, max_size=5), width=WIDTHS)
def test_facts_lose_nothing(found: list[tuple[str, str]], width: int) -> None:
    """Would catch a hash or a sentence that is cut beside its name."""
    lines = facts(found, width)
    assert characters(*lines) == characters(*(text for pair in found for text in pair))
    assert max(map(cell_len, lines)) <= max(
        width, 2 + max(cell_len(word) for _, text in found for word in ["", *text.split()])
    )


@given(text=TEXTS, width=st.integers(2, 40))
def test_folding_keeps_words_where_it_may(text: str, width: int) -> None:
    """Would catch a wide character that is counted once, and words that are joined or broken."""
    assert " ".join(folded(text, width, whole=True)) == text
    assert max(map(cell_len, folded(text, width, whole=False))) <= width


def test_an_id_gets_a_line_of_its_own_where_there_is_no_room_beside_it() -> None:
    """Would catch an id that is folded where it has no room, and one that stands alone though there is."""
    head = columns("session", "owner", "spent", numbers=("spent",), whole=("session",))
    rows = [("a" * 32, "somebody.of.forty.characters.without.blanks", "0.619126")]
    assert listed(head, rows, 160)[2] == f"{'a' * 32}  somebody.of.forty.characters.without.blanks  0.619126"
    assert listed(head, rows, 80)[3:] == ["a" * 32, "  somebody.of.forty.characters.without.blanks  0.619126"]


@pytest.mark.parametrize("count", [0.0, 29.9, 100.4, 123456.7])
@pytest.mark.parametrize("total", [-98765.4, 83.0, 999999.9])
@pytest.mark.parametrize("doubted", [(True, False), (False, True), (True, True)])
def test_doubts_of_a_statement_stand_in_a_terminal(
    capsys: pytest.CaptureFixture[str], count: float, total: float, doubted: tuple[bool, bool]
) -> None:
    """What is said of a number that is too uncertain stands on its line. Would catch a line that a terminal breaks
    anew, where noise happens to make a number uncertain."""
    aggregates = ("number_of_records", "sum_of_incomes")
    head = [{"name": "work", "role": "group"}]
    row: list[object] = ["full, part"]
    for name, value, doubt in zip(aggregates, (count, total), doubted, strict=True):
        head += [{"name": name, "role": "value"}]
        head += [{"name": f"{name}_{more}", "role": more} for more in ("standard_error", "low", "high")]
        error = abs(value) * (0.9 if doubt else 0.01) + doubt
        row += [value, error, value - 2 * error, value + 2 * error]
    rendering.show_sql(SqlResult({"columns": head, "rows": [row], "answers": [], "notices": []}))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    told = {name: next(line for line in lines if name in line) for name in aggregates}
    assert [told[name].endswith("  too uncertain") for name in aggregates] == list(doubted)
