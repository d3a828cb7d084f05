"""An audit of persons as the unit, through the whole service: two files, of which one has a person more.

The person has far more records than are kept of anybody, and stands before all others in the file. The others have too
many as well, so that some of theirs are left out. The adversary knows the key by which records are ranked (what is
promised holds for each key), hence both tables, and asks how much more the one is like itself than like the other: a
weight of 1 or -1 on every cell in which they differ. Whatever the mechanism, an event may be e^epsilon times as likely
in the one world as in the other, and no more but for delta. The planted faults make that fail.

Each file is registered and released from once, by a service without noise that keeps the law and the scale it asked
for; of that law as many stories are drawn as the audit wants. Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.declarations.spec import parse_spec
from app.measurements.pieces import counts_of
from app.measurements.pricing import Adjacency
from app.storage import readers
from app.storage.private_data import DenseData
from app.storage.readers import persons, read_private, tables
from tests.kit.audits import proven_delta
from tests.kit.noise import Asked, drawn
from tests.kit.world import AUDITOR, World, make_world

pytestmark = pytest.mark.statistical

EPSILON, DELTA, MOST = 1.0, 1e-6, 8
SHAPE = (30, 12)
SAMPLES = 4000
SPEC: dict[str, Any] = {
    "kind": "table",
    "attributes": [{"name": "a", "size": SHAPE[0]}, {"name": "b", "size": SHAPE[1]}],
    "unit": {"column": "who", "max_records": MOST},
    "budget": {"epsilon": EPSILON, "delta": DELTA},
}
KEY = b"known to everybody" * 2
RANDOM = np.random.default_rng(1)
OTHERS = [f"{a},{b},{who}" for who, a, b in zip(*(RANDOM.integers(0, n, 600) for n in (40, *SHAPE)), strict=True)]
FILES = ["\n".join(["a,b,who", *more, *OTHERS]).encode() for more in (["3,4,new"] * 200, [])]


class Known(persons.Capping):
    """Ranks by a key that the adversary knows."""

    def __init__(self, unit: Any, lengths: Any, key: bytes, memory_limit: int, nulls: Any) -> None:
        super().__init__(unit, lengths, KEY, memory_limit, nulls)


@pytest.fixture(autouse=True)
def _known_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "Capping", Known)


def kept(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Both tables, as the reader makes them."""
    found = []
    for content in FILES:
        path = folder / "known.csv"
        path.write_bytes(content)
        data = read_private(parse_spec({**SPEC, "name": "t"}), path.name, path, memory_limit=1 << 30).data
        assert isinstance(data, DenseData)
        found.append(data.array.astype(np.int64))
    return found[0], found[1]


def asked(world: World, name: str, telling: np.ndarray) -> np.ndarray:
    """A question measured on its own."""
    ann = world.analyst("ann")
    id = world.open(ann, name, mechanism={"construction": "laplace"}, epsilon=EPSILON, max_queries=1, max_updates=None)
    places = np.flatnonzero(telling)
    weights = telling.reshape(-1)[places].tolist()
    value = world.ask(ann, id, {"type": "sparse", "indices": places.tolist(), "weights": weights})["value"]
    ((law, scale, _),) = world.noise.asked
    unit = world.built.services.sessions.get(ann, id)["plan"]["noise_scale"] / float(scale)
    return np.asarray(value + drawn(law, scale, SAMPLES) * unit)


def measured(world: World, name: str, telling: np.ndarray) -> np.ndarray:
    """The whole table, as it is measured at an opening; the question is asked of that."""
    ann = world.analyst("ann")
    world.open(ann, name, mechanism={"construction": "histogram"}, epsilon=EPSILON, max_queries=1, max_updates=None)
    services = world.built.services
    found = [
        counts_of(services.measurements.get(AUDITOR, name, item["id"]).release)
        for item in services.measurements.list(AUDITOR, name, 0, 10).items
    ]
    whole = next(each for each in found if each.marginal.shape == SHAPE)
    ((law, scale),) = ((law, scale) for law, scale, cells in world.noise.asked if cells == telling.size)
    own = telling[telling != 0]
    return np.asarray((whole.units * telling).sum() + drawn(law, scale, SAMPLES * len(own)).reshape(-1, len(own)) @ own)


def audit(folder: Path, release: Callable[..., np.ndarray]) -> float:
    """Delta found at epsilon."""
    first, second = kept(folder)
    telling = np.sign(first - second)
    between = float(((first + second) * telling).sum()) / 2
    world, counts = make_world(folder / "data", noise=Asked(), readers=readers), []
    try:
        for side, content in enumerate(FILES):
            world.register_file({**SPEC, "name": f"d{side}"}, "d.csv", content)
            world.noise.asked.clear()
            counts.append(int((release(world, f"d{side}", telling) > between).sum()))
    finally:
        world.stop()
    return proven_delta(EPSILON, [(counts[0], counts[1])], SAMPLES, SAMPLES)


@pytest.mark.parametrize("release", [asked, measured])
def test_a_person_is_hidden(tmp_path: Path, release: Callable[..., np.ndarray]) -> None:
    """Would catch what the faults below do."""
    first, second = kept(tmp_path)
    assert np.abs(first - second).sum() == MOST
    assert audit(tmp_path, release) <= DELTA


# Planted faults. Each must be found.


def test_records_beyond_the_cap_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All records are kept, and noise is that for eight."""
    monkeypatch.setattr(persons, "_first_of_each", lambda owners, *_: np.ones(len(owners), dtype=bool))
    assert audit(tmp_path, asked) > DELTA


def test_a_rank_by_positions_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are hashed by where they stand in the place of what they hold. Of nobody are too many kept; but other ones
    are, of everybody, when a person is put before them."""

    def by_position(owners: np.ndarray, ids: Any, columns: Any, most: int, key: bytes) -> np.ndarray:
        hashes = [hmac.digest(key, row.to_bytes(8, "little"), "sha256") for row in range(len(owners))]
        keep = np.zeros(len(owners), dtype=bool)
        for owner in np.unique(owners):
            own = sorted(np.flatnonzero(owners == owner), key=lambda row: hashes[row])
            keep[own[:most]] = True
        return keep

    monkeypatch.setattr(persons, "_first_of_each", by_position)
    first, second = kept(tmp_path)
    assert abs(int(first.sum()) - int(second.sum())) == MOST
    assert audit(tmp_path, asked) > DELTA


def test_noise_for_one_record_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements take neighbours to be one record apart."""
    monkeypatch.setattr(PublicDataset, "adjacency", Adjacency(1))
    assert audit(tmp_path, measured) > DELTA
