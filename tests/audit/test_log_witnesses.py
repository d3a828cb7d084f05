"""Cosignatures over HTTP: what is taken from whom, what is refused, and which checkpoint is shown."""

from __future__ import annotations

import os

import httpx
import pytest

from app.services.cosignatures import KEPT
from app.storage.log_store import SqlLog
from curator_client.proofs.merkle import EMPTY_ROOT, root
from curator_client.proofs.notes import Checkpoint, Signer, Verifier, Witness
from tests.kit.service import Service, refused, unique
from tests.kit.world import eventually

pytestmark = pytest.mark.api

NOW = 1_795_000_000


class Auditor:
    """An auditor with a witness' key."""

    def __init__(self, service: Service) -> None:
        self.name, self.witness = unique("auditor"), Witness(os.urandom(32))
        self.caller = service.principal("auditor", self.name)

    def send(self, note: bytes, witness: Witness | None = None) -> httpx.Response:
        """What the service says to a note under a key."""
        key = (witness or self.witness).verifier.text()
        headers = {"Content-Type": "text/plain"}
        return self.caller.post("/v1/log/cosignatures", params={"witness": key}, content=note, headers=headers)

    def cosign(self, note: bytes, at: int = NOW) -> httpx.Response:
        return self.send(self.witness.cosign(note, at))


@pytest.fixture
def auditors(service: Service) -> list[Auditor]:
    return [Auditor(service) for _ in range(3)]


def newest(service: Service) -> bytes:
    return service.admin.get("/v1/log/checkpoint").content


def grown(service: Service) -> bytes:
    """A checkpoint of a log that is longer than it was, once nothing more comes into it."""
    before, log = size(newest(service)), SqlLog(service.built.store)
    service.principal("analyst")
    eventually(lambda: not service.built.services.sequencer.step() and not log.news(log.state(), log.settled(), 1)[0])
    note = newest(service)
    assert size(note) > before
    return note


def size(note: bytes) -> int:
    return int(note.split(b"\n")[1])


def cosigned(service: Service, least: int, *auditors: Auditor) -> httpx.Response:
    keys = [each.witness.verifier.text() for each in auditors]
    return service.admin.get("/v1/log/checkpoint", params={"witnesses": least, "witness": keys})


def test_the_newest_that_so_many_have_cosigned(service: Service, auditors: list[Auditor]) -> None:
    """Catches another size, cosignatures of others, notes that tools cannot verify, and one witness counted twice."""
    one, two, three = auditors
    refused(cosigned(service, 1, *auditors), "not-found")
    first = grown(service)
    for each in (one, two):
        assert each.cosign(first).status_code == 204
    second = grown(service)
    for each in (two, three):
        assert each.cosign(second).status_code == 204
    third = grown(service)
    assert three.cosign(third).status_code == 204
    assert size(cosigned(service, 1, *auditors).content) == size(third)
    assert size(cosigned(service, 2, *auditors).content) == size(second)
    assert size(cosigned(service, 2, one, two).content) == size(first)
    assert size(cosigned(service, 1, one).content) == size(first)
    refused(cosigned(service, 3, *auditors), "not-found")
    note = cosigned(service, 2, one, two).content
    log = Verifier.parse(service.admin.get("/v1/log/key").json()["key"])
    assert log.checkpoint(note).size == size(first)
    for each in (one, two):
        found = each.witness.verifier.open(note)
        assert (found.checkpoint, found.time) == (log.checkpoint(note), NOW)
    assert three.witness.verifier.name.encode() not in note
    assert size(service.admin.get("/v1/log/checkpoint", params={"witnesses": 2}).content) >= size(second)


def test_cosignatures_of_the_newest_are_shown_with_it(service: Service, auditors: list[Auditor]) -> None:
    """Catches lines of another size below the newest checkpoint, which then nobody could verify."""
    note = grown(service)
    assert auditors[0].cosign(note).status_code == 204
    shown = newest(service)
    assert auditors[0].witness.verifier.open(shown).time == NOW
    assert auditors[0].witness.verifier.name.encode() not in grown(service)


def test_a_cosignature_may_come_again(service: Service, auditors: list[Auditor]) -> None:
    """The same one, a later one of the same size, an earlier one, and one of an older size. Catches a refusal, and a
    time that goes back.
    """
    auditor, older = auditors[0], grown(service)
    note = grown(service)
    for at in (NOW, NOW, NOW + 60, NOW - 60):
        assert auditor.cosign(note, at).status_code == 204
    assert auditor.witness.verifier.open(cosigned(service, 1, auditor).content).time == NOW + 60
    for _ in range(2):
        assert auditor.cosign(older).status_code == 204
    assert size(cosigned(service, 1, auditor).content) == size(note)


def test_what_is_no_cosigned_checkpoint_of_this_log(service: Service, auditors: list[Auditor]) -> None:
    """Catches notes of other logs, other hashes, sizes that are not there, further lines, other text and other keys."""
    auditor, note = auditors[0], grown(service)
    own = Verifier.parse(service.admin.get("/v1/log/key").json()["key"]).checkpoint(note)
    other = Signer(bytes(32), own.origin)
    for forged in (
        other.note(own.size, EMPTY_ROOT),
        other.note(own.size + 10_000, own.root),
        Signer(bytes(32), "example.org/other").note(own.size, own.root),
        f"{own.text()}more\n\n".encode() + other.sign(f"{own.text()}more\n"),
        f"{own.text()}\nmore\n\n".encode() + other.sign(f"{own.text()}\nmore\n"),
    ):
        refused(auditor.cosign(forged), "invalid-request")
    good = auditor.witness.cosign(note, NOW)
    for forged in (note, b"", b"\xff", good[:-2], good.replace(b"\n\n", b"\n"), good + b"x" * (1 << 17)):
        reply = auditor.send(forged)
        refused(reply, "payload-too-large" if len(forged) > 1 << 16 else "invalid-request")
    refused(auditor.send(good, Witness(bytes(32))), "invalid-request")
    refused(auditor.send(auditor.witness.cosign(note, (1 << 64) - 1)), "invalid-request")
    refused(auditor.caller.post("/v1/log/cosignatures", content=good), "invalid-request")
    for key in ("nonsense", Verifier(own.origin, bytes(32)).text()):
        refused(auditor.caller.post("/v1/log/cosignatures", params={"witness": key}, content=good), "invalid-request")
    refused(cosigned(service, 1, auditor), "not-found")
    # The log's own signature is not needed: it would sign the same text again.
    assert auditor.cosign(other.note(own.size, own.root)).status_code == 204


def test_one_witness_a_principal(service: Service, auditors: list[Auditor]) -> None:
    """Catches a principal with many keys, a key that two count as theirs, and keys that an auditor may change."""
    one, two, _ = auditors
    note, others = grown(service), Witness(os.urandom(32))
    assert one.cosign(note).status_code == 204
    refused(one.send(others.cosign(note, NOW), others), "conflict")
    refused(two.send(one.witness.cosign(note, NOW), one.witness), "conflict")
    refused(one.caller.delete(f"/v1/log/witnesses/{one.name}"), "forbidden")
    assert service.admin.delete(f"/v1/log/witnesses/{one.name}").status_code == 204
    refused(service.admin.delete(f"/v1/log/witnesses/{one.name}"), "not-found")
    refused(cosigned(service, 1, one), "not-found")
    assert one.send(others.cosign(note, NOW), others).status_code == 204


def test_a_witness_cannot_fill_the_disk(service: Service, auditors: list[Auditor]) -> None:
    """Catches cosignatures that are kept for ever, and older ones that are kept in the place of newer ones."""
    auditor = auditors[0]
    while size(last := newest(service)) < KEPT + 5:
        grown(service)
    own = Signer(bytes(32), last.split(b"\n")[0].decode())
    hashes = service.built.services.log._store.hashes
    notes = [own.note(each, root(each, hashes)) for each in range(1, KEPT + 6)]
    for note in [*notes[10:], *notes[:10]]:
        assert auditor.cosign(note).status_code == 204
    kept = [row for row in service.rows("log_cosignatures") if row[0] == auditor.name]
    assert sorted(row[1] for row in kept) == list(range(6, KEPT + 6))


def test_numbers_that_are_none(service: Service) -> None:
    key = Witness(bytes(32)).verifier.text()
    for asked in (
        {"witnesses": "0"},
        {"witnesses": "-1"},
        {"witnesses": "1000"},
        {"witnesses": ["1", "1"]},
        {"witnesses": "x"},
        {"witness": key},
        {"witnesses": "1", "witness": "x"},
        {"witnesses": "1", "witness": [key] * 101},
    ):
        refused(service.admin.get("/v1/log/checkpoint", params=asked), "invalid-request")


def test_the_checkpoint_of_a_cosigned_size_is_the_one_that_was(service: Service, auditors: list[Auditor]) -> None:
    """Catches an older checkpoint that is signed with another hash than then."""
    note = grown(service)
    assert auditors[0].cosign(note).status_code == 204
    grown(service)
    shown = cosigned(service, 1, auditors[0]).content
    assert shown.startswith(note)
    assert Checkpoint.parse(note.decode().split("\n\n")[0] + "\n").size == size(shown)
