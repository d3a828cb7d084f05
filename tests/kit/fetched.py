"""What an auditor has fetched of a service in this process: its log, signed, and the transcripts of all sessions."""

from __future__ import annotations

import json
from pathlib import Path

from app.services.sequencer import Sequencer
from app.storage.log_store import SqlLog
from curator_client import LogFolder
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Signer
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
