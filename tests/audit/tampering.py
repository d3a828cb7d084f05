"""Transcripts of every family of mechanisms as a service records them, the log that it keeps of them, and an auditor
who has both.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.audit.replay import Verdict, replay
from app.services.sequencer import Sequencer
from app.storage.log_store import SqlLog
from curator_client.proofs import records
from curator_client.proofs.presence import NoRecord, Presence
from tests.kit.forger import Document
from tests.kit.patience import patience
from tests.kit.replays import Replays
from tests.kit.world import HIT, World, make_world, query, transcript_of

_BUDGET = {"epsilon": 60.0, "delta": 1e-5}
_SIZES = (3, 4)
_TABLE = {
    "kind": "table",
    "attributes": [{"name": "a", "size": _SIZES[0]}, {"name": "b", "size": _SIZES[1]}],
    "records_public": True,
}
_CELL: Document = {"type": "predicate", "where": {"a": {"equals": 1}, "b": {"in": [0, 2]}}}
_DENSE: Document = {"type": "dense", "weights": np.linspace(-1, 1, 12).reshape(_SIZES).tolist()}
_OF_TABLES = [query(0, 1, 2), _CELL, _CELL, _DENSE, query(2, 0, 1, 2, 3)]
_CUT: Document = {"type": "cut", "left": [0, 1, 2], "right": [3, 4, 5]}
_SUM: Document = {"type": "rank_one", "left": [1, 0.5, 0, 0, 0, 0], "right": [0, 0, 0, 1, 1, 0.25]}
_WORDS: list[Document] = [{"type": "elements", "weights": {"the": 1.0, word: 0.5}} for word in ("of", "and", "x")]


def _npy(counts: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, counts)
    return buffer.getvalue()


#: Data sets: what is declared, and the file.
_DATA: dict[str, tuple[Document, str, bytes]] = {
    "table": (_TABLE, "counts.npy", _npy(np.arange(12).reshape(_SIZES) * 40 + 100)),
    "private": (_TABLE | {"records_public": False}, "counts.npy", _npy(np.full(_SIZES, 100))),
    "raced": (_TABLE | {"budget": {"epsilon": 2.0, "delta": 1e-5}}, "counts.npy", _npy(np.full(_SIZES, 100))),
    "graph": ({"kind": "graph", "nodes": 6, "records_public": True}, "g.txt", b"0 1\n1 2\n0 3\n1 4\n2 5\n3 4\n"),
    "matrix": (
        {"kind": "matrix", "rows": 6, "columns": 6, "lower": 0, "upper": 5, "absent": 0},
        "m.csv",
        b"row,column,value\n0,1,4.5\n3,4,2\n",
    ),
    "words": ({"kind": "multiset"}, "w.csv", b"element,count\nthe,900\nof,500\nand,300\n"),
}
_LEARNT = {"max_updates": 5, "max_queries": 9}
#: Families: the data set, how a session is opened, and what is asked; releases have no questions.
FAMILIES: dict[str, tuple[str, Document, list[Document]]] = {
    "mw": ("table", {"mechanism": {"construction": "mw"}, **_LEARNT}, _OF_TABLES),
    "mw, bought": ("private", {"mechanism": {"construction": "mw"}, **_LEARNT}, _OF_TABLES),
    "race": ("raced", {"mechanism": {"construction": "mw"}, "release": "race", "epsilon": 0.2, **_LEARNT}, _OF_TABLES),
    "exact": (
        "raced",
        {"mechanism": {"construction": "mw"}, "calibration": "exact", "epsilon": 2.0, **_LEARNT},
        _OF_TABLES,
    ),
    "fk": ("matrix", {"mechanism": {"construction": "fk"}, **_LEARNT}, [_CUT, _SUM, _CUT]),
    "md": ("matrix", {"mechanism": {"construction": "md", "potential": "schatten", "p": 1.5}, **_LEARNT}, [_CUT, _SUM]),
    "smw": ("words", {"mechanism": {"construction": "smw", "sparsity": 3}, **_LEARNT}, _WORDS),
    "gaussian": ("table", {"mechanism": {"construction": "gaussian"}, "max_queries": 9}, _OF_TABLES),
    "laplace": ("graph", {"mechanism": {"construction": "laplace"}, "max_queries": 9}, [_CUT, _CUT]),
    "evidence": ("table", {"mechanism": {"construction": "evidence"}, "max_queries": 9}, _OF_TABLES[:3]),
    "histogram": ("table", {"mechanism": {"construction": "histogram"}, "max_queries": 9}, _OF_TABLES[:3]),
    "contract": (
        "table",
        {"mechanism": {"construction": "evidence"}, "contract": True, "max_queries": 9},
        [*_OF_TABLES[:3], {"type": "marginal", "attributes": ["a", "b"]}],
    ),
    "graph": ("graph", {"mechanism": {"construction": "evidence"}, "max_queries": 9}, [_CUT, _SUM, _CUT]),
    "workload": ("table", {"method": "gaussian", "workload": {"marginals": 1}}, []),
    "rounds": ("table", {"method": "iterative_construction", "workload": {"marginals": 2}, "rounds": 2}, []),
}


@dataclass
class Told:
    """What a service tells: two transcripts a family, and the lines of its log."""

    transcripts: dict[str, list[list[bytes]]]
    log: list[bytes]


def _session(world: World, dataset: str, words: Document, asked: list[Document]) -> str:
    ann = world.analyst("ann")
    id = world.open(ann, dataset, **{"epsilon": 1.0, "max_updates": None, **words})
    for number, each in enumerate(asked):
        world.noise.script.extend([HIT] if number == 1 else [])
        world.ask(ann, id, each)
        world.noise.script.clear()
    return id


def _release(world: World, dataset: str, words: Document) -> str:
    opener = world.built.services.opener
    ann = world.analyst("ann")
    prepared = opener.prepare_release(ann, {"dataset": dataset, "epsilon": 1.0, **words}, None)
    return str(json.loads(opener.open(ann, prepared, None))["id"])


def _transcript(world: World, id: str) -> list[bytes]:
    return [line.rstrip(b"\n") for line in transcript_of(world.built.services, id)]


def _is_closed(world: World, id: str) -> bool:
    return bool(json.loads(_transcript(world, id)[-1])["status"] == "closed")


def tell(folder: Path, families: Collection[str] = FAMILIES.keys()) -> Told:
    """Play two sessions of every family, or of some; the first one is closed."""
    world = make_world(folder)
    try:
        found: dict[str, list[str]] = {}
        for family in families:
            dataset, words, asked = FAMILIES[family]
            found[family] = []
            spec, filename, content = _DATA[dataset]
            for number, questions in enumerate((asked, asked[1:] + asked[:1])):
                if number == 0 or family == "exact":  # which takes a data set of its own
                    dataset = f"d{sum(map(len, found.values()))}"
                    world.register_file({"budget": _BUDGET, **spec, "name": dataset}, filename, content)
                if asked:
                    id = _session(world, dataset, words, questions)
                    if number == 0:
                        world.close(world.analyst("ann"), id)
                else:
                    id = _release(world, dataset, words)
                    _until(partial(_is_closed, world, id))
                found[family].append(id)
        log, sequencer = SqlLog(world.store), Sequencer(SqlLog(world.store))
        _until(lambda: not sequencer.step() and not log.news(log.state(), log.settled(), 1)[0])
        # Of a log that has all of them: trailers say how large it was then.
        told = {family: [_transcript(world, id) for id in ids] for family, ids in found.items()}
        return Told(told, log.lines(log.leaves(0, log.state().size)))
    finally:
        world.stop()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience(60)
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Auditor:
    """Both checks that somebody can make of a transcript, who holds the log that a service told."""

    def __init__(self, told: Told) -> None:
        self._log = told.log
        self._replays = {lines[0]: Replays(lines) for pair in told.transcripts.values() for lines in pair}

    def replays(self, lines: list[bytes]) -> bool:
        return self.verdict(lines).ok

    def verdict(self, lines: list[bytes]) -> Verdict:
        known = self._replays.get(lines[0]) if lines else None
        return replay(lines) if known is None else known.verdict(lines)

    def logged(self, lines: list[bytes], size: int | None = None) -> bool:
        """Whether so many lines of the log, by default all, say of a session what its transcript says: as
        :meth:`curator_client.LogFolder.verify` finds it, in lines that were verified.
        """
        try:
            sought = Presence(records.transcript_lines(io.BytesIO(b"".join(line + b"\n" for line in lines))))
        except (NoRecord, records.LineTooLong):
            return False
        for line in self._log[:size]:
            sought.look(line)
        return sought.problem() is None

    def caught(self, lines: list[bytes]) -> frozenset[str]:
        """Which of the two refuse a transcript."""
        return frozenset(
            name for name, passed in (("replay", self.replays(lines)), ("log", self.logged(lines))) if not passed
        )
