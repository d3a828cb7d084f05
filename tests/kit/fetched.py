"""What an auditor has fetched: of a service in this process its log, signed, and the transcripts of all sessions; and
of one behind HTTP its log alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from app.services.sequencer import Sequencer
from app.storage.log_store import SqlLog
from curator_client import Curator
from curator_client._sync.log import MOST_BYTES
from curator_client.log_folder import LogFolder
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Checkpoint, Signer
from tests.kit.world import AUDITOR, World

SIGNER = Signer(bytes(range(32)))


def fetched(world: World, folder: Path) -> LogFolder:
    """The folder, once the log has all of it."""
    store, transcripts = SqlLog(world.store), world.built.services.transcripts
    sequencer, tree = Sequencer(store), Frontier()
    for name in ("sessions", "releases"):
        (folder / name).mkdir(parents=True)
    while sequencer.step():
        pass
    with (folder / "entries.ndjson").open("wb") as file:
        for line in store.lines(store.leaves(0, store.state().size)):
            tree.append(leaf_hash(line))
            file.write(line + b"\n")
            record = json.loads(line)
            if record["record"] == "header":
                where = "releases" if "workload" in record["mechanism"] else "sessions"
                content = b"".join(transcripts.lines(AUDITOR, record["session"]))
                (folder / where / f"{record['session']}.ndjson").write_bytes(content)
    (folder / "key").write_text(SIGNER.verifier.text() + "\n")
    (folder / "checkpoint").write_bytes(SIGNER.note(tree.size, tree.root()))
    return LogFolder(folder)


def fetch(
    folder: LogFolder,
    curator: Curator,
    witnesses: Sequence[str] = (),
    need: int | None = None,
    max_age: float | None = None,
    most_bytes: int = MOST_BYTES,
) -> Checkpoint:
    """Fetch the log into a folder, without transcripts; the checkpoint that was verified."""
    log = curator.log(folder.path)
    terms = {"need": need, "max_age": max_age}
    return log.fetch(transcripts=False, witnesses=witnesses, most_bytes=most_bytes, **terms).checkpoint  # type: ignore[arg-type]
