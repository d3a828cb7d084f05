"""The report of a log: its sums against those of a second reader, what it finds wrong, and how much it keeps."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.report.books import MOST_MOVEMENTS
from app.report.checks import Verified
from app.report.page import page
from app.report.points import STRETCHES, Thinned
from app.report.reader import MOST_DETAILS, Reader
from app.report.sessions import MOST_QUESTIONS
from curator_client.proofs.notes import Checkpoint
from tests.kit.logs import LIMIT, Writer, honest

pytestmark = pytest.mark.unit

JSON = dict[str, Any]
SIGNED = Verified("log", "key", Checkpoint("log", 1, bytes(32)))


def report(lines: list[bytes], verified: Verified = SIGNED, **more: Any) -> JSON:
    return read(lines).document(verified, **more)


def read(lines: list[bytes]) -> Reader:
    reader = Reader()
    for line in lines:
        reader.survey(line)
    for line in lines:
        reader.take(line)
    reader.end()
    return reader


def holding(document: JSON) -> dict[str, bool | None]:
    return {each["check"]: each["holds"] for each in document["checks"]}


def wrong(document: JSON) -> set[str]:
    return {check for check, holds in holding(document).items() if holds is False}


# ------------------------------------------------------------------------------------------ sums


@st.composite
def logs(draw: st.DrawFn) -> Writer:
    """A log of what a few sessions on a few data sets did, in any order; amounts are multiples of 1/1024."""
    log = Writer()
    names = ["people", "survey"][: draw(st.integers(1, 2))]
    for name in names:
        log.register(name)
    held: dict[str, Fraction] = {}
    pures: dict[str, bool] = {}
    used = dict.fromkeys(names, Fraction(0))
    unit = Fraction(1, 1024)

    def written(amount: Fraction) -> str:
        return f"{amount.numerator / amount.denominator:.10f}"

    for number, act in enumerate(draw(st.lists(st.sampled_from("oooaaahmffcrk"), max_size=60))):
        ids = sorted(held)
        if act == "o":
            name, amount = draw(st.sampled_from(names)), draw(st.integers(1, 40)) * unit
            price = draw(st.sampled_from([None, written(unit)]))
            pure = draw(st.sampled_from([None, written(amount)]))
            if used[name] + amount <= Fraction(LIMIT):
                log.open(f"s{number}", name, written(amount), price, pure=pure)
                held[f"s{number}"], pures[f"s{number}"] = amount, pure is not None
                used[name] += amount
        elif act == "k":
            log.principal(draw(st.sampled_from(["created", "key replaced", "revoked"])), f"p{number}")
        elif ids:
            id = draw(st.sampled_from(ids))
            if act in "ah":
                log.answer(id, draw(st.sampled_from(["hypothesis", "cached", "estimate"])))
            elif act in "mf" and held[id] >= unit:
                log.move("charge", id, written(unit), written(unit) if pures[id] else None)
                held[id] -= unit
                log.answer(id, "measurement") if act == "m" else log.forfeit(id)
            elif act == "c":
                left = held.pop(id)
                used[log.sets[id]] -= left
                log.move("return", id, written(left), written(left) if pures[id] else None)
    return log


def second_reader(lines: list[bytes]) -> JSON:
    """The sums of a log, written down as plainly as can be."""
    found: JSON = {"kinds": Counter(), "sets": {}, "sessions": {}, "events": Counter()}
    place: dict[str, str] = {}
    for line in lines:
        record = json.loads(line)
        kind = record["record"]
        found["kinds"][kind] += 1
        if kind == "principal":
            found["events"][record["event"]] += 1
        if kind == "dataset":
            found["sets"][record["name"]] = {"spent": Fraction(0), "reserved": Fraction(0), "kinds": {}, "most": 0}
        if kind == "header":
            place[hashlib.sha256(line).hexdigest()] = record["session"]
            found["sessions"][record["session"]] = {"sources": Counter(), "forfeits": 0, "spent": Fraction(0)}
        if kind in ("answer", "forfeit"):
            id = place.pop(record["previous_hash"])
            place[record["entry_hash"]] = id
            if kind == "answer":
                found["sessions"][id]["sources"][record["source"]] += 1
            else:
                found["sessions"][id]["forfeits"] += 1
        if kind == "movement":
            mine, amount = found["sets"][record["dataset"]], Fraction(record["amount"])
            number, total = mine["kinds"].get(record["kind"], (0, Fraction(0)))
            mine["kinds"][record["kind"]] = (number + 1, total + amount)
            if record["kind"] == "reserve":
                mine["reserved"] += amount
            else:
                mine["reserved"] -= amount
                if record["kind"] != "return":
                    mine["spent"] += amount
                    found["sessions"][record["session"]]["spent"] += amount
            mine["most"] = max(mine["most"], mine["spent"] + mine["reserved"])
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs())
def test_sums_are_those_of_a_second_reader(log: Writer) -> None:
    """Catches anything that is counted twice, not at all, for another session or data set, or through a float; and a
    rule that is found broken where it is kept.
    """
    document, expected = report(log.lines), second_reader(log.lines)
    assert document["log"]["records"] == expected["kinds"]
    assert document["principals"]["by_event"] == expected["events"]
    assert [each["name"] for each in document["datasets"]] == list(expected["sets"])
    for each in document["datasets"]:
        mine, budget = expected["sets"][each["name"]], each["budget"]
        assert Fraction(budget["spent"]) == mine["spent"]
        assert Fraction(budget["reserved"]) == mine["reserved"]
        by_kind = {kind: (n["number"], Fraction(n["amount"])) for kind, n in each["movements"]["by_kind"].items()}
        assert by_kind == mine["kinds"]
        points = [Fraction(step["spent"]) + Fraction(step["reserved"]) for step in each["steps"]]
        assert max(points, default=0) == mine["most"]
        assert each["sessions"]["number"] == len(each["sessions"]["first"])
        for session in each["sessions"]["first"]:
            told = expected["sessions"].pop(session["session"])
            assert session["answers"]["by_source"] == told["sources"]
            assert session["forfeits"] == told["forfeits"]
            assert Fraction(session["spent"]) == told["spent"]
            questions = session["detail"]["questions"]
            assert len(questions["first"]) + questions["left_out"] == sum(told["sources"].values())
    assert not expected["sessions"]
    assert not wrong(document), document["checks"]


# ------------------------------------------------------------------------------------------ what is found


def test_an_honest_log_holds() -> None:
    """Catches a rule that an honest log breaks, and a number that is not the log's."""
    document = report(honest().lines, replays={"s1": None, "r1": None})
    assert document["holds"], document["checks"]
    assert not document["contradicted"]
    assert set(holding(document).values()) == {True}
    (people,) = document["datasets"]
    assert people["budget"]["limit"] == str(LIMIT)
    assert (people["budget"]["spent"], people["budget"]["reserved"]) == ("0.13", "0.07")
    session, release = people["sessions"]["first"]
    assert (session["answers"]["by_source"], session["forfeits"]) == ({"hypothesis": 1, "measurement": 1}, 1)
    assert session["detail"]["forfeits"]["first"][0]["price"] == {"renyi": "0.05", "pure": None}
    assert session["detail"]["questions"]["first"][0]["asked"] == {"type": "predicate", "where": {"age": 3}}
    assert session["replay"] == {"ok": True, "problem": None}
    assert (release["release"], release["method"], release["spent"]) == (True, "gaussian", "0.03")
    assert release["detail"]["errors"]["noise_scale"] == [(1, "5.5")]
    assert report(honest().lines)["checks"][-1]["holds"] is None


def altered(act: Callable[[Writer], Any], *, later: bool = True) -> list[bytes]:
    """A log to which something happened, and then, ``later``, something else an hour after that."""
    log = Writer()
    log.register("people")
    log.register("survey")
    log.open("s1", "people", "0.2", "0.05")
    log.answer("s1")
    act(log)
    if later:
        log.hour += 1
        log.open("later", "survey", "0.01")
    return log.lines


FAULTS: dict[str, tuple[str, Callable[[Writer], None]]] = {
    "a charge is missing": ("charges", lambda log: log.answer("s1", "measurement")),
    "a charge is too small": (
        "charges",
        lambda log: (log.move("charge", "s1", "0.049999999999999999999999"), log.answer("s1", "measurement")),
    ),
    "a measurement is not charged": ("charges", lambda log: log.measurement("s1", "0.01")),
    "a forfeit is not charged": ("charges", lambda log: log.forfeit("s1")),
    "more is spent than was reserved": ("books", lambda log: log.move("charge", "s1", "0.200000000000000000000001")),
    "more is given back than is held": (
        "books",
        lambda log: (log.move("charge", "s1", "0.1"), log.move("return", "s1", "0.11")),
    ),
    "the budget is passed": ("books", lambda log: log.open("s2", "people", "0.250063216874085924601357")),
    "more is reserved than planned": ("books", lambda log: log.open("s2", "people", "0.1", reserve="0.11")),
    "it is reserved twice": ("books", lambda log: log.move("reserve", "s1", "0.2")),
    "another data set pays": ("books", lambda log: log.move("charge", "s1", "0.01", dataset="survey")),
    "nobody reserves": ("books", lambda log: log.move("reserve", None, "0.01", dataset="survey")),
    "the budget is restated": (
        "books",
        lambda log: log.lines.append(log.lines[2].replace(b'"epsilon":1}', b'"epsilon":9}').replace(b'"s1"', b'"s9"')),
    ),
    "another order": ("books", lambda log: log.open("s2", "people", "0.1", plan={"order": "18"})),
    "registered twice": ("books", lambda log: log.register("people")),
    "an unknown data set": ("books", lambda log: log.move("forfeit", None, "0.1", dataset="nothing")),
    "an entry is changed": (
        "chains",
        lambda log: log.lines.append(log.lines.pop().replace(b'"value":1.5', b'"value":2.5')),
    ),
    "an entry is left out": ("chains", lambda log: (log.answer("s1"), log.answer("s1"), log.lines.pop(-2))),
    "an entry comes twice": ("chains", lambda log: log.lines.append(log.lines[-1])),
    "a second header": ("chains", lambda log: log.lines.append(log.lines[2])),
    "a sequence is skipped": (
        "chains",
        lambda log: (log.heads.update(s1=(log.heads["s1"][0], 7)), log.answer("s1")),
    ),
    "a session without a header": ("records", lambda log: log.move("charge", "s7", "0.01", dataset="people")),
    "no JSON": ("records", lambda log: log.lines.append(b"nothing")),
    "no amount": ("records", lambda log: log.move("charge", "s1", "1e999999999")),
    "no sum": ("records", lambda log: log.move("charge", "s1", "-0.1")),
    "no time": ("records", lambda log: log.move("charge", "s1", "0.1", recorded_at=7)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_follow_is_found(fault: str) -> None:
    """Each planted fault is found by the check that is for it, and by no other; without it nothing is. Catches a rule
    that is not looked at, and one that finds what is not there.
    """
    check, act = FAULTS[fault]
    assert not wrong(report(altered(lambda _: None)))
    document = report(altered(act))
    assert wrong(document) == {check}
    assert not document["holds"]
    assert not document["contradicted"]
    assert document["findings"]["first"][0]["check"] == check


def test_a_charge_may_come_a_moment_later() -> None:
    """An entry is in the log, its movement not yet. Catches an accusation, and a silence, before anybody can know."""
    lines = altered(lambda log: log.answer("s1", "measurement"), later=False)
    document = report(lines)
    assert holding(document)["charges"] is None
    assert document["holds"]
    charged = altered(lambda log: (log.answer("s1", "measurement"), log.move("charge", "s1", "0.05", sequence=2)))
    assert charged[: len(lines)] == lines
    assert holding(report(charged))["charges"] is True


def test_a_budget_that_was_lost_counts_as_spent() -> None:
    """After an old backup all is forfeited. Catches a loss that passes the budget, or that may be spent again."""
    log = Writer()
    log.register("people")
    log.open("s1", "people", "0.2", "0.05")
    log.retire("people")
    log.move("forfeit", "s1", "0.2")
    log.move("forfeit", None, "0.250063216874085924601356", "0", dataset="people")
    document = report(log.lines)
    assert document["holds"], document["checks"]
    assert document["datasets"][0]["budget"]["spent"] == str(LIMIT)
    log.open("s2", "people", "0.000000000000000000000001", pure="0.1")
    assert wrong(report(log.lines)) == {"books"}


def test_unknown_records_are_counted() -> None:
    """A later service may record what this report does not know. Catches that being found wrong, or kept silent."""
    document = report([*honest().lines, b'{"record":"later","anything":[1]}'])
    assert document["holds"]
    assert document["log"]["records"]["other"] == 1


@pytest.mark.parametrize(
    ("verified", "found"),
    [
        (Verified("log", "key", None, "the note is not signed"), {"signature"}),
        (Verified("log", "key", SIGNED.checkpoint, "3 lines do not make it"), {"lines"}),
        (Verified("log", "key", SIGNED.checkpoint, None, SIGNED.checkpoint, "the first lines are others"), {"earlier"}),
        (Verified("log", "key", SIGNED.checkpoint, refused=SIGNED.checkpoint), {"refused"}),
        (Verified("log", "key", SIGNED.checkpoint, earlier=SIGNED.checkpoint), set()),
    ],
)
def test_what_became_of_the_checkpoint(verified: Verified, found: set[str]) -> None:
    """Catches a contradiction that is not told as one, on the page or in the document."""
    document = report(honest().lines, verified)
    assert wrong(document) == found
    assert document["contradicted"] == bool(found)
    assert ("not the lines that were signed" in page(document)) == bool(found & {"signature", "lines"})
    assert ("Two different histories" in page(document)) == bool(found & {"earlier", "refused"})
    assert ("All that was checked holds" in page(document)) == (not found)


def test_a_transcript_that_does_not_replay() -> None:
    """Catches a verdict that is left out at the top, or where the session is."""
    document = report(honest().lines, replays={"s1": "entry 2: no", "r1": None})
    assert wrong(document) == {"replay"}
    assert page(document).count("entry 2: no") >= 2


# ------------------------------------------------------------------------------------------ bounds


def long_log(questions: int, sessions: int = 1) -> Writer:
    log = Writer()
    log.register("people")
    log.open("s0", "people", "0.4", "0.00001")
    for number in range(questions):
        log.answer("s0", values=[0.5] * 50, error_bound=1000.0 if number == questions // 2 else 7.0)
        if number % 10 == 0:
            log.move("charge", "s0", "0.00001", sequence=number + 1)
    for number in range(1, sessions):
        log.open(f"s{number}", "people", "0.00001")
        log.move("return", f"s{number}", "0.00001")
    return log


@pytest.mark.slow
def test_a_long_log_makes_no_longer_a_report() -> None:
    """Catches questions, movements, sessions or points that are kept without a bound, extremes that are thinned away,
    and a rest that is not told.
    """
    short, long = (report(long_log(n, sessions).lines) for n, sessions in ((2000, 150), (12000, 2500)))
    sizes = [len(orjson.dumps(each)) for each in (short, long)]
    rows = len(long["datasets"][0]["sessions"]["first"])
    assert sizes[1] < sizes[0] + 1_000_000
    assert len(page(long)) < 3_000_000
    (people,) = long["datasets"]
    assert people["sessions"]["number"] == rows + people["sessions"]["left_out"]["number"] == 2500
    assert sum(each["detail"] is not None for each in people["sessions"]["first"]) == MOST_DETAILS
    session = people["sessions"]["first"][0]
    assert len(session["detail"]["questions"]["first"]) == MOST_QUESTIONS
    assert session["detail"]["questions"]["left_out"] == 12000 - MOST_QUESTIONS
    bounds = session["detail"]["errors"]["error_bound"]
    assert len(bounds) <= 8 * STRETCHES
    assert max(height for _, height in bounds) == 1000.0
    assert (bounds[0][0], bounds[-1][0]) == (1, 12000)
    movements = people["movements"]
    assert (len(movements["first"]), len(movements["last"])) == (MOST_MOVEMENTS, MOST_MOVEMENTS)
    rest = sum(each["number"] for each in movements["left_out"].values())
    assert movements["number"] == rest + 2 * MOST_MOVEMENTS == 1 + 1200 + 2 * 2499
    total = sum(
        Fraction(each["amount"]) for each in [*movements["first"], *movements["last"]] if each["kind"] == "charge"
    )
    left = movements["left_out"]["charge"]["amount"]
    assert total + Fraction(left) == Fraction(movements["by_kind"]["charge"]["amount"])


@pytest.mark.slow
def test_a_long_log_is_read_in_little_memory() -> None:
    """Catches a reader that keeps its lines: 6,000 of them have 3 MB."""
    log = long_log(6000)
    assert sum(map(len, log.lines)) > 3_000_000
    tracemalloc.start()
    try:
        read(log.lines)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_long_words_are_cut() -> None:
    """Catches a question, a declaration or a name of any length in the report."""
    log = Writer()
    log.register("people", attributes=[{"name": "age", "values": [f"{'x' * 90}{n}" for n in range(10**4)]}])
    log.open("s1", "people", "0.2", mechanism={"construction": "y" * 10**6})
    log.answer("s1", asked=orjson.dumps({"type": "z" * 10**5}), values=[0.5] * 10**5)
    log.principal("created", "w" * 10**6)
    log.register("v" * 10**6)
    document = report(log.lines)
    assert len(orjson.dumps(document)) < 100_000
    assert len(page(document)) < 200_000
    assert wrong(document) == {"records"}


@given(st.lists(st.integers(-5, 5) | st.integers(), max_size=3000))
def test_thinned(values: list[int]) -> None:
    """Catches a first, last, least or greatest that is lost, another order, and too many that are kept."""
    thinned: Thinned[tuple[int, int]] = Thinned(lambda point: point[1])
    points = list(enumerate(values))
    for point in points:
        thinned.add(point)
    kept = thinned.items()
    assert kept == sorted(set(kept))
    assert set(kept) <= set(points)
    assert len(kept) <= 8 * STRETCHES
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
        heights = [height for _, height in kept]
        assert (min(heights), max(heights)) == (min(values), max(values))
    if len(points) <= 2 * STRETCHES:
        assert kept == points
