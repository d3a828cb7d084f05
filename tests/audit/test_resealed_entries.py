"""A field of an entry, a measurement or the trailer of an evidence, contract, graph or release transcript is another,
all numbers and hashes computed anew: what a replay takes on trust stands here, and is nothing else.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.audit.tampering import Auditor, Told, tell
from tests.kit.forger import Document, Path_, changed, documents_of, places, resealed

pytestmark = [pytest.mark.adversarial, pytest.mark.slow]

FAMILIES = ["contract", "graph", "evidence", "workload", "rounds"]
#: Fields that every record is tried with, and how many others of a transcript are.
ALWAYS, OTHERS = ("error_bound", "recorded_at", "sequence", "source", "tested"), 25


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell(tmp_path_factory.mktemp("service"), FAMILIES)


def trusted(family: str, document: Document, path: Path_) -> bool:
    """Whether nothing in a transcript follows on a field (docs/audit.md): words of a question that say the same, how
    large the log is, other noise; and last digits, which another machine may have found, of bounds and expectations.
    """
    match document["record"], path[0]:
        case "answer", "asked":
            return True
        case "answer", "error_bound":
            return document["error_bound"] is not None
        case "measurement", "expected":
            return True
        case "measurement", "measurement":
            return "values" in path and family in ("workload", "rounds")
        case "trailer", "log_size" | "status":
            return True
    return False


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_replay_takes_on_trust(told: Told, family: str) -> None:
    """Catches a field that no rule holds: a bound that was never promised, a measurement of another time than its
    entry's or of none, one that is of the opening and says that it is not.
    """
    honest, auditor, rng, held = told.transcripts[family][0], Auditor(told), Random(4), 0
    documents = documents_of(honest)
    every = [(at, path) for at, each in enumerate(documents) if at for path in places(each)]
    always = [(at, path) for at, path in every if path[0] in ALWAYS]
    for at, path in always + rng.sample(every, OTHERS):
        document = documents[at]
        if trusted(family, document, path):
            continue
        try:
            sealed = resealed(changed(documents, at, path), updates=False)
        except (KeyError, TypeError, AttributeError):
            continue  # nothing that could be sealed
        if sealed != honest:
            # Entries that nothing was measured for may have been made later.
            later = path == ("recorded_at",) and document["record"] == "answer" and not document.get("measurement")
            assert later or not auditor.replays(sealed), (document["record"], path)
            held += 1
    assert held > 10
