"""Rounds of an iterative construction in a transcript: what an audit can tell of them, and what it finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from app.audit import writing
from app.audit.replay import Verdict, replay
from app.curator.dataset import PublicDataset
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.services.release_measuring import Ready, measured_for
from app.services.release_request import parse_release
from app.spaces.records import RecordsTensor
from curator_client.proofs import records
from tests.kit.noise import Noise

pytestmark = pytest.mark.unit

Document = dict[str, Any]
AT = "2026-01-01T00:00:00Z"
SIZES = {"a": 2, "b": 3, "c": 4}
SPEC: Document = {
    "name": "table",
    "kind": "table",
    "attributes": [{"name": name, "size": size} for name, size in SIZES.items()],
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
ROUNDS = 3
_NOT_OF_THE_OPENING = ("record", "format", "session", "opened_at")


def data() -> RecordsTensor:
    rng = np.random.default_rng(2)
    columns = [rng.geometric(0.5, 400) % size for size in SIZES.values()]
    return RecordsTensor([column.astype(np.uint8) for column in columns], tuple(SIZES.values()))


@lru_cache
def honest(public: bool = True) -> tuple[bytes, ...]:
    """The transcript of a release that was carried through."""
    dataset = PublicDataset(parse_spec(SPEC | {"records_public": public}), records=400.0 if public else None)
    asked = {
        "dataset": "table",
        "method": "iterative_construction",
        "workload": {"marginals": 2},
        "epsilon": 0.5,
        "rounds": ROUNDS,
    }
    request = parse_request(parse_release(asked).session())
    opening = Opening(dataset, request, make_plan(dataset, request), None, Pins((), ()))
    made = measured_for(Ready(opening, [], data()), Noise())
    documents = [
        {"record": "measurement", "session": "e1d2", "sequence": k, "recorded_at": AT, **each.document()}
        for k, each in enumerate(made, start=1)
    ]
    header = writing.header(session="e1d2", opening=opening.document(), opened_at=AT)
    return tuple(written(header, documents))


def written(header: bytes, measurements: list[Document]) -> list[bytes]:
    """A transcript with these measurements, each with its entry, and all hashes good."""
    lines, head = [header], records.sha256(header)
    opening = {name: told for name, told in json.loads(header).items() if name not in _NOT_OF_THE_OPENING}
    for sequence, document in enumerate(measurements, start=1):
        line = records.canonical(document | {"sequence": sequence})
        sealed = writing.release_entry(
            sequence=sequence, recorded_at=AT, previous_hash=head, measurement=records.sha256(line)
        )
        lines += [line, sealed.line]
        head = sealed.entry_hash
    trailer = writing.trailer(
        entries=len(measurements),
        head_hash=head,
        hypothesis_digest=writing.HypothesisDigest(opening).hexdigest(),
        updates=len(measurements),
        status="closed",
    )
    return [*lines, trailer]


def judged(lines: Any) -> Verdict:
    return replay(line + b"\n" for line in lines)


@pytest.mark.parametrize("public", [True, False])
def test_an_honest_release_passes(public: bool) -> None:
    """With the number of records known, and bought before the rounds. Would catch a rule that refuses what rounds
    measure, and a price of rounds that is not the plan's.
    """
    verdict = judged(honest(public))
    assert verdict.ok, verdict
    header, *lines = map(json.loads, honest(public))
    costs = [Decimal(line["cost"]["renyi"]) for line in lines if line["record"] == "measurement"]
    assert len(costs) == ROUNDS + (not public)
    assert sum(costs) == Decimal(verdict.summary["spent"]) <= Decimal(header["plan"]["reserved"])


def cheaper(measurements: list[Document]) -> None:
    """The price of the measurement without its choice, about."""
    price = Decimal(measurements[1]["cost"]["renyi"])
    measurements[1]["cost"]["renyi"] = str((price * 2 / 3).quantize(Decimal("1e-24")))


def quieter(measurements: list[Document]) -> None:
    measurements[1]["measurement"]["noise"]["scale"] = "1"


def stranger(measurements: list[Document]) -> None:
    """A marginal of which no workload was asked."""
    marginal = measurements[1]["measurement"]["marginal"]
    size = marginal["sizes"][0]
    marginal |= {"attributes": marginal["attributes"][:1], "partitions": [None], "sizes": [size]}
    measurements[1]["measurement"]["values"] = [1] * size


def more(measurements: list[Document]) -> None:
    measurements.append(measurements[-1])


def fewer(measurements: list[Document]) -> None:
    measurements.pop()


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (cheaper, "a measurement is none that a round could have made"),
        (quieter, "a measurement is none that a round could have made"),
        (stranger, "a measurement is none that a round could have made"),
        (more, "a measurement is none that a round could have made"),
        (fewer, "the release lacks a measurement that was due"),
    ],
)
def test_rounds_that_the_plan_does_not_allow_are_found(forge: Callable[[list[Document]], None], problem: str) -> None:
    """All hashes made good. Would catch an audit that believes whatever was chosen: a choice that was not charged, more
    noise than was paid for or less, and rounds too many or too few.
    """
    header, *lines = honest()
    measurements = [json.loads(line) for line in lines if b'"record":"measurement"' in line]
    assert written(header, measurements) == list(honest())
    forge(measurements)
    verdict = judged(written(header, measurements))
    assert verdict.problem == problem


def test_what_was_chosen_cannot_be_told() -> None:
    """Any candidate may follow any other: a choice is a draw, and an audit says no more of it. Would catch a claim of
    the audit's page that is not so.
    """
    header, *lines = honest()
    measurements = [json.loads(line) for line in lines if b'"record":"measurement"' in line]
    assert records.parse(header)["plan"]["rounds"]["candidates"] == 3
    verdict = judged(written(header, measurements[::-1]))
    assert verdict.ok, verdict


def test_the_plan_states_the_rounds_and_the_papers_beside_them() -> None:
    """Epsilon of a choice and of a measurement as GRU11 has it, worked by hand, is far below what the ledger allows.
    Would catch the paper's formula with another logarithm, and a plan that hides its rounds.
    """
    plan = records.parse(honest()[0])["plan"]
    rounds = plan["rounds"]
    assert rounds["papers_epsilon"] == pytest.approx(0.5 / (4 * (3 * 13.815510558) ** 0.5), rel=1e-5)
    assert float(rounds["choice_epsilon"]) > 2 * rounds["papers_epsilon"]
    # Of multiplicative weights 2 n^2 ln d/alpha^2 = T.
    assert rounds["progress"] == pytest.approx(400 * (2 * np.log(24) / 3) ** 0.5, rel=1e-5)
    assert plan["max_updates"] == plan["measurements"] == rounds["number"] == ROUNDS
    assert plan["epsilon_alone"] <= 1.0


def broken_off(price: Document, *, beside: int = 0) -> list[bytes]:
    """A transcript of a release whose noise was lost, at a price, behind so many of its measurements."""
    header, *lines = honest()
    before = lines[: 2 * beside]
    head = json.loads(before[-1])["entry_hash"] if before else records.sha256(header)
    sealed = writing.forfeit_entry(sequence=beside + 1, recorded_at=AT, previous_hash=head, price=price)
    opening = {name: told for name, told in json.loads(header).items() if name not in _NOT_OF_THE_OPENING}
    trailer = writing.trailer(
        entries=beside + 1,
        head_hash=sealed.entry_hash,
        hypothesis_digest=writing.HypothesisDigest(opening).hexdigest(),
        updates=beside + 1,
        status="closed",
    )
    return [header, *before, sealed.line, trailer]


def test_a_release_that_lost_its_noise_pays_its_whole_share() -> None:
    """Catches an auditor who takes such a transcript for one that lacks measurements, and one who lets a release off
    with less than what may have been drawn costs.
    """
    share = json.loads(honest()[0])["plan"]["reserved"]
    verdict = judged(broken_off({"renyi": share, "pure": None}))
    assert verdict.ok, verdict
    assert (verdict.summary["forfeit_answers"], verdict.summary["spent"]) == (1, share)
    cheap = judged(broken_off({"renyi": str(Decimal(share) / 2), "pure": None}))
    assert (cheap.ok, cheap.problem) == (False, "a release forfeits its whole share, and measures nothing beside that")
    late = judged(broken_off({"renyi": share, "pure": None}, beside=1))
    assert not late.ok


def test_nothing_is_measured_behind_a_loss() -> None:
    """Catches a release that is charged for lost noise and then draws for nothing."""
    share = json.loads(honest()[0])["plan"]["reserved"]
    header, lost, _ = broken_off({"renyi": share, "pure": None})
    document = json.loads(honest()[1]) | {"sequence": 2, "cost": {"renyi": "0", "pure": None}}
    line = records.canonical(document)
    sealed = writing.release_entry(
        sequence=2,
        recorded_at=AT,
        previous_hash=json.loads(lost)["entry_hash"],
        measurement=records.sha256(line),
    )
    verdict = judged([header, lost, line, sealed.line])
    assert (verdict.ok, verdict.sequence) == (False, 2)
    assert verdict.problem is not None
    assert "none is due" in verdict.problem
