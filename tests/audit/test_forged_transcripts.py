"""Without the defence a transcript with another status, digest, weights, times, bounds or end would pass.

Each forgery is made twice where that differs: by hand, and by somebody who computes every hash of the file anew. What
the second one gets away with is told here too, beside the kept hash that stops him.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rfc8785

from app.audit import writing
from app.audit.replay import Verdict, replay
from app.cli import main
from tests.audit.test_replay import story
from tests.audit.transcripts import play_session
from tests.kit.forger import Document, resealed
from tests.kit.replays import Replays
from tests.kit.strategies import BUDGET, Words, universe

pytestmark = pytest.mark.adversarial

ENTRIES = [i for i, d in enumerate(story().documents) if d["record"] in ("answer", "forfeit")]
HASHES = [story().documents[i]["entry_hash"] for i in ENTRIES]
OTHER = np.arange(12, dtype="<i4").tobytes()


def changed(at: int, **fields: Any) -> list[bytes]:
    """The story with fields of one record changed, in canonical bytes, and no hash computed anew."""
    lines = list(story().lines)
    lines[at] = rfc8785.dumps(story().documents[at] | fields)
    return lines


def rewritten(at: int, **fields: Any) -> list[bytes]:
    """The same by somebody who computes all hashes anew."""
    documents = copy.deepcopy(story().documents)
    documents[at] |= fields
    return resealed(documents)


def refused(verdict: Verdict, says: str) -> None:
    assert not verdict.ok
    assert says in str(verdict.problem), verdict


class TestTheTrailer:
    def test_another_status(self) -> None:
        """A session told as closed that is open, from which more answers may come."""
        refused(replay(changed(-1, status="closed")), "was changed")
        whole = replay(rewritten(-1, status="closed"))
        assert whole.ok  # nothing else in the file follows from the status, which docs/audit.md says
        assert whole.summary["status"] == "closed"

    def test_another_digest(self) -> None:
        """A hypothesis told as this session's that is another's: refused on any machine, its hash made good."""
        *rest, last = story().lines
        document = json.loads(last)
        for digest in ("0" * 64, hashlib.sha256(b"another").hexdigest()):
            refused(replay(changed(-1, hypothesis_digest=digest)), "another hypothesis")
            document |= {"hypothesis_digest": digest}
            del document["trailer_hash"]
            document["trailer_hash"] = hashlib.sha256(rfc8785.dumps(document)).hexdigest()
            refused(replay([*rest, rfc8785.dumps(document)]), "another hypothesis")

    def test_the_digest_is_the_last_bit_of_no_sum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hypothesis whose last bits are others', as on another machine: the same digest, and the same verdict. Would
        catch a rule that calls honest transcripts forged."""
        from app.constructions.multiplicative_weights import MultiplicativeWeights as Weights

        honest = Weights.update

        def other(self: Any, state: Any, measurement: Any) -> None:
            honest(self, state, measurement)
            state.tensor.array *= 1 + 2.0**-50
            state.tensor.touch()

        monkeypatch.setattr(Weights, "update", other)
        verdict = replay(story().lines)
        assert verdict.ok, verdict


#: Entries that tell the question as it was asked.
ASKED = [i for i in ENTRIES if "asked" in story().documents[i]]


class TestTheQuestionAsAsked:
    """Words that people read beside another question than was answered."""

    def test_honest_entries_have_it(self) -> None:
        assert len(ASKED) == sum(story().documents[i]["record"] == "answer" for i in ENTRIES) > 10
        assert not any({"unverified", "within"} & story().documents[i]["asked"].keys() for i in ASKED)

    @pytest.mark.parametrize("at", ASKED)
    def test_another_question(self, at: int) -> None:
        """By hand and with all hashes made anew: named at the entry that tells it."""
        other = {"type": "sparse", "indices": [0, 3], "weights": [1, 0.5]}
        assert not replay(changed(at, asked=other)).ok
        verdict = replay(rewritten(at, asked=other))
        refused(verdict, "the question as asked does not compile to the recorded query")
        assert verdict.sequence == story().sequence(at)

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"type": "predicate", "where": {"x0": "nobody"}}, "does not compile"),
            ({"type": "predicate", "where": {"income": 3}}, "does not compile"),
            ({"type": "cut", "left": "all", "right": "all"}, "does not compile"),
            ({}, "does not compile"),
            ([], "none that an entry keeps"),
            (None, "none that an entry keeps"),
            ("how many?", "none that an entry keeps"),
            ({"type": "predicate", "where": {"x0": "é"}, "unverified": False}, "none that an entry keeps"),
            ({"type": "predicate", "where": {"x0": "é"}, "within": 3}, "none that an entry keeps"),
            ({"type": "predicate", "where": {"x0": ["é"] * 20_000}}, "none that an entry keeps"),
        ],
    )
    def test_what_is_no_question_of_this_session(self, asked: Any, says: str) -> None:
        refused(replay(rewritten(ASKED[0], asked=asked)), says)

    def test_another_spelling_of_the_same(self) -> None:
        """A forger may spell the question otherwise: it is the same one, and nothing else follows from its words."""
        assert replay(rewritten(ASKED[0], asked={"type": "predicate", "where": {"x0": ["é"]}})).ok

    def test_entries_without_it(self) -> None:
        """Transcripts from before it was kept, and of arrays, stay readable."""
        documents = [{k: v for k, v in d.items() if k != "asked"} for d in copy.deepcopy(story().documents)]
        assert replay(resealed(documents)).ok


def weights(blob: bytes) -> bytes:
    return writing.weights_record(hashlib.sha256(blob).hexdigest(), blob)


WEIGHTS = story().entry(record="weights")
#: Entries whose query is no dense one.
PLAIN = [i for i in ENTRIES if "sha256" not in story().documents[i].get("query", {})]


class TestWeights:
    @pytest.mark.parametrize("at", [*PLAIN, len(story().lines) - 1])
    def test_of_nobody(self, at: int) -> None:
        """Weights slipped in that nothing in the session was asked with, anywhere."""
        lines = story().lines
        assert not replay([*lines[:at], weights(OTHER), *lines[at:]]).ok

    def test_before_and_after_their_use(self) -> None:
        lines, at = story().lines, WEIGHTS
        record = lines[at]
        refused(replay([*lines[: at + 1], record, *lines[at + 1 :]]), "no entry names")
        refused(replay([*lines[: at + 2], record, *lines[at + 2 :]]), "second time")
        again = next(i for i in ENTRIES if i > at + 1 and "sha256" in story().documents[i].get("query", {}))
        refused(replay([*lines[:again], record, *lines[again:]]), "second time")
        refused(replay([*lines[:at], lines[at + 1], record, *lines[at + 2 :]]), "the query is none")
        refused(replay([*lines[: at - 1], record, lines[at - 1], *lines[at + 1 :]]), "not its query's")
        refused(replay([lines[0], record, *lines[1:at], *lines[at + 1 :]]), "not its query's")

    def test_of_another_size_or_spelling(self) -> None:
        lines, at = story().lines, WEIGHTS
        for blob in (b"", OTHER[:-4], OTHER + OTHER, OTHER + b"\0"):
            refused(replay([*lines[:at], weights(blob), *lines[at + 1 :]]), "size")
        refused(replay([*lines[:at], weights(OTHER), *lines[at + 1 :]]), "not its query's")
        record = json.loads(lines[at])
        for other in (
            {**record, "data": record["data"][:-4] + "===="},
            {**record, "sha256": record["sha256"].upper()},
            {**record, "more": 1},
            {**record, "data": "*" * len(record["data"])},
        ):
            assert not replay([*lines[:at], rfc8785.dumps(other), *lines[at + 1 :]]).ok

    def test_spare_bits_of_base64(self) -> None:
        """40 bytes leave four bits, which may say anything. Would catch weights of two spellings."""
        sides = [{"name": "x", "size": 5}, {"name": "y", "size": 2}]
        ten = universe({"attributes": sides, "name": "t", "kind": "table", "budget": BUDGET})
        asked: list[Words | str] = [{"type": "dense", "weights": [0.5, 1, 0.25, -1, 0.125, 1, 1, 0.5, -0.25, 0.75]}]
        counts = np.array([[5, 900], [3, 70], [2, 8], [40, 1], [0, 6]])
        played = play_session(ten, counts, asked, mechanism={"construction": "mw"}, max_updates=4)
        assert replay(played.lines).ok
        at = played.entry(record="weights")
        data = json.loads(played.lines[at])["data"]
        assert data.endswith("A==")
        spare = data[:-3] + "B=="
        assert base64.b64decode(spare) == base64.b64decode(data)
        line = played.lines[at].replace(data.encode(), spare.encode())
        assert not replay([*played.lines[:at], line, *played.lines[at + 1 :]]).ok


class TestTheEnd:
    """Cut off, with a trailer made for what is left."""

    @pytest.mark.parametrize("kept", [1, 4, len(ENTRIES) - 1])
    def test_is_missed_by_who_kept_a_hash(self, kept: int) -> None:
        """The chain alone cannot tell; the last hash that somebody saw, or how many answers he got, can."""
        documents = [copy.deepcopy(story().documents[i]) for i in (0, *ENTRIES[:kept])]
        names = {d.get("query", {}).get("sha256") for d in documents}
        if story().documents[WEIGHTS]["sha256"] in names:
            documents.insert(WEIGHTS, copy.deepcopy(story().documents[WEIGHTS]))
        lines = resealed([*documents, copy.deepcopy(story().documents[-1])])
        assert replay(lines).ok
        for seen in range(kept, len(HASHES)):
            refused(replay(lines, head=HASHES[seen]), "not there")
            refused(replay(lines, head=HASHES[seen], entries=seen + 1), "cut off")
            refused(replay(lines, entries=seen + 1), "cut off")
        assert replay(lines, head=HASHES[kept - 1], entries=kept).summary["kept_head_at"] == kept

    def test_every_hash_of_the_whole_is_found_where_it_stands(self) -> None:
        """Would catch a kept hash that is compared with the last one alone, or never."""
        lines = story().lines
        start = hashlib.sha256(lines[0]).hexdigest()
        for sequence, head in enumerate([start, *HASHES]):
            assert replay(lines, head=head).summary["kept_head_at"] == sequence
            assert replay(lines, head=head, entries=sequence).ok
            assert replay(lines, entries=sequence).ok
            refused(replay(lines, head=head, entries=max(sequence - 1, 0) if sequence else 1), "not there")
        refused(replay(lines, head="0" * 64), "not there")


class TestTimes:
    @pytest.mark.parametrize("i", ENTRIES)
    def test_rewritten(self, i: int) -> None:
        """All later, each after the one before: the chain alone cannot tell, any hash kept from there on can."""
        documents = copy.deepcopy(story().documents)
        for document in documents[i:]:
            if "recorded_at" in document:
                document["recorded_at"] = document["recorded_at"].replace("2026", "2027")
        lines = resealed(documents)
        assert replay(lines).ok
        at = ENTRIES.index(i)
        for kept in (at, len(HASHES) - 1):
            refused(replay(lines, head=HASHES[kept]), "not there")
        if at:
            assert replay(lines, head=HASHES[at - 1]).ok

    @pytest.mark.parametrize(
        "time", ["2025-12-31T23:59:59Z", "2026-01-01", "now", "", None, 5, "2026-01-01T00:00:00+01:00"]
    )
    @pytest.mark.parametrize("i", [ENTRIES[0], ENTRIES[6], ENTRIES[-1]])
    def test_backwards_or_none(self, i: int, time: Any) -> None:
        assert not replay(rewritten(i, recorded_at=time)).ok
        assert not replay(rewritten(0, opened_at=time if time != "2025-12-31T23:59:59Z" else "2027-01-01T00:00:00Z")).ok


BOUNDED = [i for i in ENTRIES if story().documents[i].get("error_bound")]


@pytest.mark.parametrize("i", BOUNDED)
@pytest.mark.parametrize("factor", [3.0, 2.0, 1.01])
def test_larger_bounds(i: int, factor: float) -> None:
    """With them a session that broke its promise would have kept it. A bound is the plan's, and what rounding the
    weights can have added, which is next to nothing beside it."""
    bound = story().documents[i]["error_bound"] * factor
    refused(replay(rewritten(i, error_bound=bound)), "larger than the plan's")


def test_bounds_of_a_query_that_weighs_nothing() -> None:
    i = next(i for i in ENTRIES if story().documents[i].get("query") == {"type": "zero"})
    assert replay(rewritten(i, error_bound=0)).ok
    refused(replay(rewritten(i, error_bound=1.0)), "larger than the plan's")


# ------------------------------------------------------------------------------------------------ anything at all


def strange(rng: random.Random, value: Any) -> Any:
    """Another value in the place of one, of its own kind or another."""
    near = {
        bool: lambda: not value,
        int: lambda: value + rng.choice([-1, 1, 2**31, -(2**40)]),
        float: lambda: value * rng.choice([-1, 0.5, 3, 1e300]) + 1,
        str: lambda: value[:-1] + rng.choice('0x\u00e9\U0001f600"\\'),
        list: lambda: [*value, *value[:1]] if rng.random() < 0.5 else value[1:],
        dict: lambda: {k: v for k, v in value.items() if k != rng.choice([*value, ""])},
    }
    if rng.random() < 0.5 and type(value) in near:
        return near[type(value)]()
    return rng.choice([None, True, -1, 2**53, 1e-320, 1e308, "", "x", [], {}, [[]], {"a": {"b": []}}, value, [value]])


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths into a document."""
    if isinstance(document, dict):
        return [p for k in document for p in [(*path, k), *places(document[k], (*path, k))]]
    if isinstance(document, list):
        return [p for k in range(len(document)) for p in [(*path, k), *places(document[k], (*path, k))]]
    return []


def mutated(rng: random.Random, documents: list[Document]) -> list[Document]:
    documents = copy.deepcopy(documents)
    kind, at = rng.randrange(5), rng.randrange(len(documents))
    if kind == 0:
        del documents[at]
    elif kind == 1:
        documents.insert(rng.randrange(len(documents) + 1), copy.deepcopy(documents[at]))
    elif kind == 2:
        other = rng.randrange(len(documents))
        documents[at], documents[other] = documents[other], documents[at]
    else:
        *path, last = rng.choice(places(documents[at]))
        inside: Any = documents[at]
        for key in path:
            inside = inside[key]
        if isinstance(inside, dict) and rng.random() < 0.2:
            inside[rng.choice(["more", "entry_hash", "unverified"])] = inside.pop(last)
        else:
            inside[last] = strange(rng, inside[last])
    return documents


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_changed_is_found(seed: int) -> None:
    """A seeded fuzz that knows what a transcript is: records dropped, doubled and swapped, values of any kind put
    anywhere. As it stands, every change is found. With all hashes computed anew some make another honest session, and
    are found by the hash of the last entry. Would also catch a file that ends the replay in an exception."""
    rng, honest, accepted = random.Random(seed), story(), 0
    alone, held = Replays(honest.lines), Replays(honest.lines, head=HASHES[-1], entries=len(HASHES))
    for _ in range(120):
        documents = mutated(rng, honest.documents)
        try:
            lines = [rfc8785.dumps(d) for d in documents]
            sealed = resealed(documents)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue  # no JSON can say it, or there is no chain to make anew
        verdicts = alone.verdict(lines), alone.verdict(sealed), held.verdict(sealed)
        assert verdicts[0].ok == (lines == honest.lines), verdicts[0]
        assert verdicts[2].ok == (verdicts[1].ok and sealed[:-1] == honest.lines[:-1]), verdicts[2]
        assert not any("makes no sense" in str(verdict.problem) for verdict in verdicts), verdicts
        accepted += verdicts[1].ok
    assert accepted  # the forger is not one whose every work is refused for its form


class TestTheCommand:
    def test_says_so_in_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Exit codes: 0 for what follows, 1 for what does not, 2 for an option that was not understood."""
        path = tmp_path / "s.ndjson"
        path.write_bytes(story().content)

        def run(*options: str) -> tuple[int, str]:
            monkeypatch.setattr("sys.argv", ["curator", "audit", "replay", str(path), *options])
            with pytest.raises(SystemExit) as ended:
                main()
            told = capsys.readouterr()
            return int(ended.value.code or 0), " ".join((told.out + told.err).split())

        assert run()[0] == 0
        for options in ([], ["--head", HASHES[2]], ["--head", HASHES[2].upper(), "--entries", "3"], ["--entries", "3"]):
            assert run(*options)[0] == 0
        assert json.loads(run("--head", HASHES[2], "--json")[1])["summary"]["kept_head_at"] == 3
        for options, says in (
            (["--head", "0" * 64], "is not there"),
            (["--head", HASHES[2], "--entries", "4"], "is not there"),
            (["--entries", "1000"], "cut off"),
            (["--memory-limit", "1kB"], "more memory than the limit"),
        ):
            code, told = run(*options)
            assert (code, says in told) == (1, True), told
        for options in (["--head", "abc"], ["--entries", "-1"], ["--memory-limit", "much"]):
            assert run(*options)[0] == 2
        path.write_bytes(b"\n".join(changed(-1, status="closed")) + b"\n")
        assert run()[0] == 1
