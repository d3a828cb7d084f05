"""Whatever is changed in a transcript is refused by a replay, or by who holds it against the log.

Transcripts of every family of mechanisms, as a service records them, are tampered with twice: as it stands, which a
replay finds whatever it is; and by a forger who computes anew all numbers and hashes that follow, who makes what a
replay takes for another honest session, and is found by the log. Each test says which of the two is to catch it. What
neither catches fails here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, cycle
from pathlib import Path
from random import Random

import pytest

from app.audit.replay import replay
from curator_client.errors import Contradicted, NotVerified
from curator_client.log_folder import LogFolder
from curator_client.proofs import chain as links
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.follower import Follower, LogForked, LogShrank
from curator_client.proofs.merkle import (
    ProofRefused,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root,
)
from tests.audit.tampering import FAMILIES, Auditor, Told, tell
from tests.audit.test_log import Kept
from tests.audit.test_replay import bought, story
from tests.kit.forger import (
    SIGNER,
    Document,
    Path_,
    as_they_stand,
    changed,
    documents_of,
    keep,
    lines_of,
    places,
    resealed,
)

#: Every test here plays sessions of all families first.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

REPLAY, LOG = frozenset({"replay"}), frozenset({"log"})
BOTH = REPLAY | LOG
#: How many places of a transcript are looked at where not all of them are.
SAMPLE, MOST_PLACES = 10, 40


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    found = tell(tmp_path_factory.mktemp("service"))
    found.transcripts["forfeits"] = [story().lines, bought().lines]
    for played in (story(), bought()):
        found.log += [line for line in played.lines[:-1] if not line.startswith(records.WEIGHTS_HEAD)]
    return found


@pytest.fixture(scope="module")
def auditor(told: Told) -> Auditor:
    return Auditor(told)


@pytest.fixture(params=[*FAMILIES, "forfeits"])
def honest(request: pytest.FixtureRequest, told: Told) -> list[bytes]:
    return told.transcripts[request.param][0]


def test_honest_transcripts_pass_both_checks(told: Told, auditor: Auditor) -> None:
    """Closed ones and open ones. Without this every test below would pass for nothing; nor would they if the forger
    changed what he does not mean to.
    """
    kinds = Counter[str]()
    for family, transcripts in told.transcripts.items():
        for lines in transcripts:
            assert auditor.caught(lines) == frozenset(), (family, auditor.verdict(lines))
            assert resealed(documents_of(lines)) == lines, family
            kinds.update(json.loads(line)["record"] for line in lines)
        assert len({lines[-1] for lines in transcripts}) == 2
    assert kinds.keys() == {"header", "answer", "forfeit", "release", "measurement", "weights", "trailer"}


def test_the_chain_by_itself(honest: list[bytes], told: Told) -> None:
    """What a client without a replay follows: honest transcripts of every family pass, and a change of any record that
    leaves the hashes as they are does not. Catches a kind of transcript that is refused for nothing, and a record that
    hangs on no hash. Weights alone are left to a replay.
    """
    for lines in (each for family in told.transcripts.values() for each in family):
        assert links.follow(lines).entries == json.loads(lines[-1])["entries"]
    found, rng, documents = all_places(honest), Random(2), documents_of(honest)
    for at, path in [rng.choice([place for place in found if place[0] == at]) for at in range(len(honest))]:
        if documents[at]["record"] != "weights":
            plain, _ = tampered(honest, at, path, drop=False)
            with pytest.raises(Unfollowed):
                links.follow(plain)
    for cut in (honest[:-1], honest[1:], [*honest[:-2], honest[-1]], [honest[0], *honest]):
        with pytest.raises(Unfollowed):
            links.follow(cut)


def expected(document: Document, path: Path_, *, drop: bool) -> frozenset[str]:
    """Which of the two must refuse a transcript, all of its hashes good, in which a value of this is another one."""
    if path == ("log_size",):
        # Trailers from before there was a log say nothing of one, and nothing else follows from it.
        return frozenset() if drop else LOG
    # Weights are named in the log by their hash, in the entry that they are of; a trailer follows from the rest.
    return REPLAY if document["record"] in ("weights", "trailer") else LOG


def tampered(lines: list[bytes], at: int, path: Path_, *, drop: bool) -> tuple[list[bytes], list[bytes] | None]:
    """A transcript in which a value is another one, or is taken out: as it stands, and sealed; None for what could not
    be sealed, and for a number or hash that the forger puts right again.
    """
    made = changed(documents_of(lines), at, path, drop=drop)
    plain = [*lines]
    (plain[at],) = as_they_stand(made[at : at + 1])
    assert plain != lines
    try:
        sealed = resealed(made, updates=False)
    except (KeyError, TypeError, ValueError, AttributeError):
        return plain, None
    return plain, None if sealed == lines else sealed


def all_places(lines: list[bytes]) -> list[tuple[int, Path_]]:
    return [(at, path) for at, document in enumerate(documents_of(lines)) for path in places(document)]


@pytest.mark.parametrize("drop", [False, True])
def test_some_field_of_every_record(
    told: Told, auditor: Auditor, honest: list[bytes], drop: bool, tmp_path: Path
) -> None:
    """Replay, as it stands; the log, sealed anew (weights and the trailer, which are not in it: replay). Catches a
    field that nothing holds. The auditor reads on where an honest transcript was left and has the log in memory: what
    he finds is what a replay from the first line and a folder say, of a field of every record.
    """
    found, rng = all_places(honest), Random(1)
    folder, place = LogFolder(keep(tmp_path / "log", told.log)), tmp_path / "t.ndjson"
    first = [rng.choice([place for place in found if place[0] == at]) for at in range(len(honest))]
    documents = documents_of(honest)
    for number, (at, path) in enumerate(first + rng.sample(found, SAMPLE)):
        plain, sealed = tampered(honest, at, path, drop=drop)
        where = at, documents[at]["record"], path
        assert not auditor.replays(plain), where
        if sealed is None:
            continue
        caught = auditor.caught(sealed)
        assert expected(documents[at], path, drop=drop) <= caught, (where, caught)
        if number < len(first):
            assert auditor.verdict(plain) == replay(plain)
            assert auditor.verdict(sealed) == replay(sealed)
            place.write_bytes(b"".join(line + b"\n" for line in sealed))
            with pytest.raises(NotVerified) if "log" in caught else nullcontext():
                folder.verify(place)


def test_every_field_of_every_record(auditor: Auditor, honest: list[bytes]) -> None:
    """The same of all, of long transcripts of every second or third and all of the trailer; and a replay alone does not
    do: times at least can be changed.
    """
    found, documents, fooled = all_places(honest), documents_of(honest), False
    some = found[:: 1 + len(found) // MOST_PLACES]
    for at, path in dict.fromkeys([*some, *((at, path) for at, path in found if at == len(documents) - 1)]):
        for drop in (False, True):
            plain, sealed = tampered(honest, at, path, drop=drop)
            where = at, documents[at]["record"], path, drop
            assert not auditor.replays(plain), where
            if sealed is None:
                continue
            due = expected(documents[at], path, drop=drop)
            if "log" in due:
                assert not auditor.logged(sealed), where
            if "replay" in due or not fooled:
                replayed = auditor.replays(sealed)
                assert not ("replay" in due and replayed), where
                fooled |= replayed
    assert fooled


def test_fields_that_a_replay_takes_on_trust(auditor: Auditor, honest: list[bytes]) -> None:
    """The log alone catches another time of any entry, and another status. Would fail if a replay found them, or if
    the log were compared by something else than whole lines.
    """
    documents = documents_of(honest)
    last = max(at for at, document in enumerate(documents) if "recorded_at" in document)
    # A measurement beside an entry says the same time, which a replay holds against the entry's.
    twice = "measurement" in documents[last]
    documents[last]["recorded_at"] = "2099-01-01T00:00:00Z"
    assert auditor.caught(resealed(documents)) == (LOG | {"replay"} if twice else LOG)
    documents = documents_of(honest)
    documents[-1]["status"] = {"open": "closed", "closed": "open"}[documents[-1]["status"]]
    assert auditor.caught(resealed(documents)) == LOG


def test_a_status_is_that_of_the_log(told: Told, auditor: Auditor) -> None:
    """Of open sessions too, and where nothing goes back at the end. The log alone catches it."""
    for family, transcripts in told.transcripts.items():
        for lines in transcripts:
            documents = documents_of(lines)
            documents[-1]["status"] = {"open": "closed", "closed": "open"}[documents[-1]["status"]]
            assert auditor.caught(resealed(documents)) == LOG, family


def test_fields_that_are_added(auditor: Auditor, honest: list[bytes]) -> None:
    """To every record. Replay, as it stands and sealed; the log too, of what is in it."""
    for at, document in enumerate(documents_of(honest)):
        for name in ("more", "unverified", "measurement", "within"):
            if name in document:
                continue
            documents = documents_of(honest)
            documents[at][name] = 0
            plain = [*honest]
            (plain[at],) = as_they_stand(documents[at : at + 1])
            assert not auditor.replays(plain), (at, name)
            assert "replay" in auditor.caught(resealed(documents)), (at, name)


# ------------------------------------------------------------------------------------------------ whole records


def moved(honest: list[bytes], other: list[bytes]) -> Iterator[tuple[str, list[Document]]]:
    """Each record dropped, repeated, exchanged with the next one, replaced by one of another session, and one of that
    put before it.
    """
    mine, theirs = documents_of(honest), documents_of(other)
    for at in range(1, len(mine) - 1):
        yield f"dropped {at}", mine[:at] + mine[at + 1 :]
        yield f"repeated {at}", mine[: at + 1] + mine[at:]
        if at < len(mine) - 2:
            yield f"exchanged {at}", [*mine[:at], mine[at + 1], mine[at], *mine[at + 2 :]]
        stranger = theirs[min(at, len(theirs) - 2)]
        yield f"replaced {at}", [*mine[:at], stranger, *mine[at + 1 :]]
        yield f"spliced {at}", [*mine[:at], stranger, *mine[at:]]
    yield "another header", [theirs[0], *mine[1:]]
    yield "another trailer", [*mine[:-1], theirs[-1]]
    yield "two headers", [mine[0], *mine]
    yield "two trailers", [*mine, mine[-1]]
    yield "no header", mine[1:]
    yield "no trailer", mine[:-1]


@pytest.mark.parametrize("family", [*FAMILIES, "forfeits"])
def test_records_moved(told: Told, auditor: Auditor, family: str) -> None:
    """As they stand: replay. Sealed by a forger who also finds the number of updates that fits: one of the two, and the
    log for every sealed one that a replay takes. Catches records that may be left out, told twice or in another order.
    """
    honest, other = told.transcripts[family]
    for what, documents in moved(honest, other):
        plain = as_they_stand(documents)
        if plain == honest:
            continue
        assert not auditor.replays(plain), what
        if documents[0]["record"] != "header":
            continue
        sealed = resealed(documents)
        if sealed != honest:
            assert auditor.caught(sealed), what


def test_every_end_cut_off(told: Told, auditor: Auditor) -> None:
    """Behind every record, with a trailer made for what is left: the log, wherever a replay takes it; and it does take
    most of those cut behind an entry, which only the log tells from the whole. Without a trailer: both, of nothing at
    all, too, as of a download that failed. Without its first line: both.
    """
    assert auditor.caught([]) == BOTH
    for family, transcripts in told.transcripts.items():
        taken = 0
        for lines in transcripts:
            documents = documents_of(lines)
            assert auditor.caught(lines[:-1]) == auditor.caught(lines[1:]) == BOTH, family
            for end in range(1, len(documents) - 1):
                assert not auditor.replays(lines[:end]), (family, end)
                assert not auditor.logged(lines[:end]), (family, end)
                sealed = resealed([*documents[:end], documents[-1]])
                caught = auditor.caught(sealed)
                assert caught, (family, end)
                taken += caught == LOG
        assert taken > 0, family


def given_back(told: Told, lines: list[bytes]) -> bytes:
    """The movement that tells that a session was closed."""
    session = json.loads(lines[0])["session"].encode()
    (found,) = [line for line in told.log if b'"kind":"return"' in line and session in line]
    return found


def test_what_came_since(told: Told, auditor: Auditor) -> None:
    """A folder that ends before a transcript does, at every line of the log. Catches a transcript that passes by a log
    that has less than all of it.
    """
    lines = told.transcripts["contract"][0]
    last = max(told.log.index(line) for line in lines if line in told.log)
    closed = told.log.index(given_back(told, lines))
    for size in range(min(told.log.index(line) for line in lines[:-1]), max(last, closed) + 3):
        assert auditor.logged(lines, size) == (size > max(last, closed))


# ------------------------------------------------------------------------------------------------ bytes


def bytes_changed(auditor: Auditor, lines: list[bytes], step: int) -> None:
    content = b"".join(line + b"\n" for line in lines)
    for at in range(0, len(content), step):
        mask = 1 << (at % 7)
        made = content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]
        assert not auditor.replays(lines_of(made)), at


def test_bytes_of_every_export(told: Told, auditor: Auditor) -> None:
    """Replay. A sample of every family."""
    for transcripts in told.transcripts.values():
        bytes_changed(auditor, transcripts[0], 211)


@pytest.mark.parametrize(("family", "step"), [("laplace", 1), ("workload", 7), ("histogram", 7)])
def test_bytes_of_a_short_export(told: Told, auditor: Auditor, family: str, step: int) -> None:
    """Replay, by itself: one bit of any byte of one export, and of every seventh of two with other records."""
    bytes_changed(auditor, told.transcripts[family][0], step)


# ------------------------------------------------------------------------------------------------ the log itself


def test_every_byte_of_a_folder(told: Told, tmp_path: Path) -> None:
    """Of the lines that a short transcript takes, the checkpoint and the key. Catches a byte that is not looked at, and
    one that ends the check in an exception.
    """
    documents = documents_of(told.transcripts["laplace"][0])
    documents[-1]["log_size"] = len(documents) - 1  # in a log that has nothing else
    lines = resealed(documents)
    movement, place = given_back(told, lines), tmp_path / "t.ndjson"
    folder = LogFolder(keep(tmp_path / "log", [*lines[:-1], movement]))
    place.write_bytes(b"".join(line + b"\n" for line in lines))
    assert folder.verify(place)[1] == len(lines) - 1
    for file in sorted(folder.path.iterdir()):
        content = file.read_bytes()
        flipped = (
            content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]
            for at, mask in zip(range(len(content)), cycle((1, 0x80, 4)), strict=False)
        )
        cut = (content[:end] for end in (0, 1, len(content) // 2, len(content) - 2))
        for made in chain(flipped, cut):
            if file.name == "key" and made.strip() == content.strip():
                continue  # the end of its line, which is no part of it
            file.write_bytes(made)
            with pytest.raises(NotVerified):
                folder.verify(place)
        file.write_bytes(content)


def test_lines_of_a_folder_moved(told: Told, tmp_path: Path) -> None:
    """Each line dropped, repeated or exchanged with the next, under the checkpoint that was signed; and the checkpoint
    of another history with as many lines.
    """
    log = told.log[:20]
    place = keep(tmp_path / "log", log)
    for at in range(len(log)):
        for made in (
            log[:at] + log[at + 1 :],
            log[: at + 1] + log[at:-1],
            [*log[:at], *log[at : at + 2][::-1], *log[at + 2 :]],
        ):
            if made == log:
                continue
            (place / "entries.ndjson").write_bytes(b"".join(line + b"\n" for line in made))
            with pytest.raises(Contradicted):
                LogFolder(place).read(lambda line: None)


def test_a_log_that_is_rolled_back_or_forked(told: Told) -> None:
    """An auditor who has seen a checkpoint, and every earlier one, another of the same size, and every later one of a
    log that lost a line, with whatever proof that log has.
    """
    log, shorter = Kept(told.log[:24]), Kept(told.log[:9] + told.log[10:24])
    follower = Follower(SIGNER.verifier)
    for seen in (1, 12, 23):
        state = Follower(SIGNER.verifier, follower.look(SIGNER.note(seen, root(seen, log))))
        for size in range(seen):
            with pytest.raises(LogShrank):
                state.look(SIGNER.note(size, root(size, log)))
        with pytest.raises(LogForked):
            state.look(SIGNER.note(seen, root(seen, Kept([b"another", *told.log[1:24]]))))
    state = Follower(SIGNER.verifier, follower.look(SIGNER.note(12, root(12, log))))
    for size in range(13, 23):
        found = state.look(SIGNER.note(size, root(size, shorter)))
        with pytest.raises(LogForked):
            state.check_growth(found, consistency_proof(12, size, shorter))
        with pytest.raises(LogForked):
            state.check_growth(found, consistency_proof(12, size, log))


def test_forged_proofs(told: Told) -> None:
    """Every bit of every hash of a proof, one hash more or less, and two exchanged; of the line, and of the index."""
    log, size = Kept(told.log[:21]), 21
    whole, first = root(size, log), root(13, log)
    for index in (0, 7, 20):
        proof, line = inclusion_proof(index, size, log), leaf_hash(told.log[index])
        check_inclusion(line, index, size, proof, whole)
        for forged in forgeries(proof):
            with pytest.raises(ProofRefused):
                check_inclusion(line, index, size, forged, whole)
        for at in range(size):
            if at != index:
                with pytest.raises(ProofRefused):
                    check_inclusion(line, at, size, proof, whole)
                with pytest.raises(ProofRefused):
                    check_inclusion(leaf_hash(told.log[at]), index, size, proof, whole)
    proof = consistency_proof(13, size, log)
    check_consistency(13, size, proof, first, whole)
    for forged in forgeries(proof):
        with pytest.raises(ProofRefused):
            check_consistency(13, size, forged, first, whole)


def forgeries(proof: list[bytes]) -> Iterator[list[bytes]]:
    for at, hashed in enumerate(proof):
        for bit in range(8 * len(hashed)):
            flipped = bytearray(hashed)
            flipped[bit // 8] ^= 1 << bit % 8
            yield [*proof[:at], bytes(flipped), *proof[at + 1 :]]
        yield proof[:at] + proof[at + 1 :]
        yield proof[: at + 1] + proof[at:]
        yield [*proof[:at], hashed[:-1], *proof[at + 1 :]]
        if at + 1 < len(proof):
            yield [*proof[:at], proof[at + 1], hashed, *proof[at + 2 :]]
