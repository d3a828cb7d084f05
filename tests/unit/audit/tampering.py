"""Transcripts of every family of mechanisms as a service records them, the log that it keeps of them, and a forger who
computes anew whatever hash follows from what he changes.
"""

from __future__ import annotations

import copy
import io
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.audit import writing
from app.audit.replay import Verdict, replay
from app.client import LogFolder, NotVerified
from app.services.sequencer import Sequencer
from app.storage.log_store import SqlLog
from curator_client.proofs import records
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Signer
from tests.kit.patience import patience
from tests.kit.world import HIT, World, make_world, query, transcript_of

Document = dict[str, Any]
SIGNER = Signer(bytes(range(32)))
_ENTRIES = ("answer", "forfeit", "release")
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


def write_folder(folder: Path, lines: Sequence[bytes]) -> LogFolder:
    """A folder as an auditor has it who fetched these lines."""
    folder.mkdir()
    tree = Frontier()
    for line in lines:
        tree.append(leaf_hash(line))
    (folder / "key").write_text(SIGNER.verifier.text() + "\n")
    (folder / "checkpoint").write_bytes(SIGNER.note(tree.size, tree.root()))
    (folder / "entries.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    return LogFolder(folder)


@dataclass
class Auditor:
    """Both checks that somebody can make of a transcript."""

    folder: LogFolder
    place: Path

    def replays(self, lines: list[bytes]) -> bool:
        return self.verdict(lines).ok

    @staticmethod
    def verdict(lines: list[bytes]) -> Verdict:
        return replay(line + b"\n" for line in lines)

    def logged(self, lines: list[bytes]) -> bool:
        self.place.write_bytes(b"".join(line + b"\n" for line in lines))
        try:
            self.folder.verify(self.place)
        except NotVerified:
            return False
        return True

    def caught(self, lines: list[bytes]) -> frozenset[str]:
        """Which of the two refuse a transcript."""
        return frozenset(
            name for name, passed in (("replay", self.replays(lines)), ("log", self.logged(lines))) if not passed
        )


# ------------------------------------------------------------------------------------------------ the forger


def rehashed(documents: Sequence[Document], *, renumber: bool = True) -> list[bytes]:
    """The documents as a transcript whose numbers and hashes all agree, whatever they say. ``_was`` of a measurement is
    the hash that others name it by.
    """
    documents = [copy.deepcopy(document) for document in documents]  # the same one twice, too
    names, sequence, pinned = dict[str, str](), 0, 0
    header = documents[0]
    evidence = header.get("evidence")
    pins = sum(len(evidence[kind]) for kind in ("known", "made")) if isinstance(evidence, dict) else 0
    for document in documents:
        if document["record"] in _ENTRIES:
            sequence += 1
            if renumber:
                document["sequence"] = sequence
        elif document["record"] == "measurement":
            was = document.pop("_was")
            pinned += 1
            if renumber and pinned > pins:
                document["sequence"] = sequence + 1
            names[was] = records.sha256(records.canonical(document))
    if isinstance(evidence, dict):
        for kind in ("known", "made"):
            evidence[kind] = [names.get(name, name) for name in evidence[kind]]
    lines, head = list[bytes](), ""
    learnt = writing.HypothesisDigest({k: v for k, v in header.items() if k not in _BESIDE})
    for document in documents:
        kind = document["record"]
        if kind == "header":
            head = records.sha256(records.canonical(document))
        elif kind in _ENTRIES:
            document.pop("entry_hash", None)
            if "measurement" in document:
                document["measurement"] = names.get(document["measurement"], document["measurement"])
            document["previous_hash"] = head
            head = document["entry_hash"] = records.sha256(records.canonical(document))
            learnt.take(records.canonical(document))
        elif kind == "trailer":
            document.pop("trailer_hash", None)
            document |= {"head_hash": head, "hypothesis_digest": learnt.hexdigest()}
            document |= {"entries": sequence} if renumber else {}
            document["trailer_hash"] = records.sha256(records.canonical(document))
        lines.append(records.canonical(document))
    return lines


_BESIDE = ("record", "format", "session", "opened_at")


def documents_of(lines: Sequence[bytes]) -> list[Document]:
    """The records of a transcript; measurements with the hash that they are named by."""
    found = []
    for line in lines:
        document = json.loads(line)
        found.append(document | ({"_was": records.sha256(line)} if document["record"] == "measurement" else {}))
    return found


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All paths into a document; of long lists the first and the last item."""
    items = list(document.items() if isinstance(document, dict) else enumerate(document))
    for key, value in items if isinstance(document, dict) or len(items) < 3 else (items[0], items[-1]):
        if key != "_was":
            yield (*path, key)
            if isinstance(value, dict | list):
                yield from places(value, (*path, key))


def other(value: Any) -> Any:
    """Another value of the same kind, as near to one as can be."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 1.0 if value.is_integer() else float(np.nextafter(value, np.inf))
        case str() if value:
            last = value[-1]
            return value[:-1] + (chr(ord(last) - 1) if last in "9fzZ" else chr(ord(last) + 1))
        case str():
            return "x"
        case list():
            return value[1:] if value else [0]
        case dict():
            return dict(list(value.items())[1:]) if value else {"x": 0}
    return 0


def changed(documents: Sequence[Document], at: int, path: tuple[Any, ...], *, drop: bool = False) -> list[Document]:
    """The documents with one value of one of them changed, or taken out."""
    made = copy.deepcopy(list(documents))
    *way, last = path
    inside: Any = made[at]
    for key in way:
        inside = inside[key]
    if drop:
        del inside[last]
    else:
        inside[last] = other(inside[last])
    return made
