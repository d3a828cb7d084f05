"""What the comparison of ways to answer cuts runs on: graphs, streams of cuts with their exact answers, an adversary.

Real graphs are those of ``../shared/data``. Of an undirected graph a cut (S, T) counts an edge between S and T once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans2
from scipy.sparse import block_array, coo_array, csr_array, triu
from scipy.sparse.linalg import aslinearoperator

from app.spaces.tensor import FloatArray

BoolArray = npt.NDArray[np.bool_]
SingleArray = npt.NDArray[np.float32]
#: A value, and the ends of its 95% interval: not numbers where a method has none.
Answer: TypeAlias = tuple[float, float, float]

#: Questions counted at a time.
_CHUNK = 250
#: Exponent of the degrees in JT12's second family, which is stated for 1 to 3/2.
BETA = 1.25


def cut_sums(weights: Any, lefts: BoolArray, rights: BoolArray, undirected: bool) -> FloatArray:
    """The weight of every cut, one a row of ``lefts`` and ``rights``: ``S'WT``, of an undirected graph's symmetric
    weights less ``(S&T)'W(S&T)/2``, so that a pair counts once. ``weights`` is dense or sparse."""
    found = np.empty(len(lefts))
    across = weights.T
    for start in range(0, len(lefts), _CHUNK):
        part = slice(start, start + _CHUNK)
        s, t = lefts[part].astype(np.float32), rights[part].astype(np.float32)
        found[part] = np.einsum("ij,ij->i", (across @ s.T).T, t, dtype=np.float64)
        if undirected:
            both = s * t
            found[part] -= np.einsum("ij,ij->i", (across @ both.T).T, both, dtype=np.float64) / 2
    return found


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph without weights; unless bipartite it has no loops.

    Attributes:
        matrix: 0/1, a row is a source or left node; symmetric if undirected.
        clustered: how the communities that questions are about are found: "louvain", or "spectral" for k-means of
            leading singular vectors.
    """

    name: str
    matrix: csr_array
    undirected: bool = False
    bipartite: bool = False
    clustered: str = "louvain"

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return int(rows), int(columns)

    @property
    def edges(self) -> int:
        """How many there are."""
        return int(self.matrix.nnz) // (1 + self.undirected)

    def truth(self, left: BoolArray, right: BoolArray) -> float:
        """Number of edges of a cut."""
        return float(self.truths(left[None], right[None])[0])

    def truths(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        """Number of edges of every cut."""
        return cut_sums(self.matrix, lefts, rights, self.undirected)

    def cells(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        """Number of pairs of every cut: no answer is larger."""
        pairs: FloatArray = lefts.sum(axis=1, dtype=np.float64) * rights.sum(axis=1)
        if self.bipartite:
            return pairs
        both: FloatArray = (lefts & rights).sum(axis=1, dtype=np.float64)
        return pairs - (both * (both + 1) / 2 if self.undirected else both)

    @cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Thirty singular triplets of what the matrix has beyond its degrees."""
        of = self.matrix.astype(np.float64)
        rows, columns = of.sum(axis=1), of.sum(axis=0)
        degrees = aslinearoperator(rows[:, None] / of.sum()) @ aslinearoperator(columns[None])
        return leading(aslinearoperator(of) - degrees, min(30, *self.shape), np.random.default_rng(0), rounds=8)

    @cached_property
    def labels(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The community of every node, sources first."""
        rows = self.shape[0]
        if self.clustered == "spectral":
            left, values, right = (part[..., :6] for part in (self.spectrum[0], self.spectrum[1], self.spectrum[2].T))
            sides = zip((left, right), (12, 8), strict=True)
            found = [kmeans2(side * values, k, minit="++", rng=np.random.default_rng(1))[1] for side, k in sides]
            return found[0], found[1]
        import networkx

        joined = block_array([[None, self.matrix], [self.matrix.T, None]]) if self.bipartite else self.matrix
        graph = networkx.from_scipy_sparse_array(csr_array(joined.maximum(joined.T)))
        label = np.empty(len(graph), dtype=np.int64)
        for number, members in enumerate(networkx.community.louvain_communities(graph, seed=1)):
            label[list(members)] = number
        return (label[:rows], label[rows:]) if self.bipartite else (label, label)


def leading(
    weights: Any, count: int, rng: np.random.Generator, *, rounds: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The leading singular triplets of a matrix or an operator, by subspace iteration."""
    basis = np.linalg.qr(weights @ rng.standard_normal((weights.shape[1], count + 6)).astype(np.float32))[0]
    for _ in range(rounds):
        basis = np.linalg.qr(weights.T @ basis)[0]
        basis = np.linalg.qr(weights @ basis)[0]
    left, values, right = np.linalg.svd((weights.T @ basis).T, full_matrices=False)
    return (basis @ left)[:, :count], values[:count], right[:count]


# Graphs.


def of_pairs(name: str, pairs: npt.NDArray[Any], shape: tuple[int, int], **how: Any) -> Graph:
    """The graph of an edge list: each edge once, loops dropped unless it is bipartite, both ways if undirected."""
    if not how.get("bipartite"):
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if how.get("undirected"):
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = np.unique(pairs, axis=0)
    ones = np.ones(len(pairs), dtype=np.uint8)
    return Graph(name, csr_array(coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=shape)), **how)


def _listed(name: str, file: str, how: dict[str, Any], data: Path, *, undirected: bool) -> Graph:
    pairs = np.loadtxt(data / file, dtype=np.int64, **how)
    return of_pairs(name, pairs, (int(pairs.max()) + 1,) * 2, undirected=undirected)


def _deezer(data: Path) -> Graph:
    """Users and the genres they like."""
    liked = json.loads((data / "deezer-RO-genres" / "RO_genres.json").read_text())
    genres = {genre: place for place, genre in enumerate(sorted({g for chosen in liked.values() for g in chosen}))}
    pairs = np.array([(user, genres[genre]) for user, chosen in enumerate(liked.values()) for genre in chosen])
    return of_pairs("deezer", pairs, (len(liked), len(genres)), bipartite=True, clustered="spectral")


def _lastfm(data: Path) -> Graph:
    """Users and the artists they listen to."""
    pairs = []
    for file in ("data1.txt", "test1.txt"):
        for line in (data / "lastfm-lightgcn" / file).read_text().splitlines():
            user, artist, *_ = line.split()
            pairs.append((int(user), int(artist)))
    places = np.array(pairs) - np.min(pairs, axis=0)
    rows, columns = places.max(axis=0) + 1
    return of_pairs("lastfm", places, (int(rows), int(columns)), bipartite=True)


def _blocks(data: Path) -> Graph:
    """A directed block model: 800 nodes in five blocks, edges of probability 0.15 within and 0.03 between them."""
    rng = np.random.default_rng(7)
    block = rng.integers(0, 5, 800)
    edges = rng.random((800, 800)) < np.where(block[:, None] == block, 0.15, 0.03)
    return of_pairs("sbm", np.argwhere(edges), (800, 800))


def _power(data: Path) -> Graph:
    """A directed graph whose expected degrees follow a power law, those of either side in an order of their own."""
    rng, nodes = np.random.default_rng(7), 1500
    degrees = np.arange(1, nodes + 1) ** (-1 / 1.3)
    degrees = np.minimum(degrees / degrees.sum() * 30_000, nodes / 2)
    odds = np.outer(degrees[rng.permutation(nodes)], degrees[rng.permutation(nodes)]) / degrees.sum()
    return of_pairs("power", np.argwhere(rng.random((nodes, nodes)) < odds), (nodes, nodes))


def _of_degrees(name: str, degrees: npt.NDArray[Any]) -> Graph:
    """A bipartite graph of V left nodes with these degrees, whose neighbours are chosen at random of V right ones."""
    nodes, rng = len(degrees), np.random.default_rng(7)
    order = np.argsort(rng.random((nodes, nodes)), axis=1)
    pairs = [(row, column) for row in range(nodes) for column in order[row, : degrees[row]]]
    return of_pairs(name, np.array(pairs), (nodes, nodes), bipartite=True, clustered="spectral")


def _imbalanced(nodes: int, data: Path) -> Graph:
    """JT12's imbalanced graph: V^(3/4) left nodes are joined to all right nodes, the others to V^(1/2) of them."""
    degrees = np.full(nodes, round(nodes**0.5))
    degrees[: round(nodes**0.75)] = nodes
    return _of_degrees(f"jt-{nodes}", degrees)


def _imbalanced_power(nodes: int, data: Path) -> Graph:
    """JT12's power law: of the V left nodes a part proportional to i^-beta has degree i."""
    share = np.cumsum(np.arange(1, nodes + 1, dtype=np.float64) ** -BETA)
    degrees = 1 + np.searchsorted(share / share[-1], (np.arange(nodes) + 0.5) / nodes)
    return _of_degrees(f"jt-power-{nodes}", degrees)


def _random(nodes: int, data: Path) -> Graph:
    """A bipartite graph of as many edges as the imbalanced one is expected to have, every pair alike."""
    full, few = round(nodes**0.75), round(nodes**0.5)
    density = (full * nodes + (nodes - full) * few) / nodes**2
    edges = np.random.default_rng(7).random((nodes, nodes)) < density
    return of_pairs(f"random-{nodes}", np.argwhere(edges), (nodes, nodes), bipartite=True, clustered="spectral")


_SIZES = (256, 512, 1024, 2048)
_COMMAS, _COMMENTS = {"delimiter": ",", "skiprows": 1}, {"skiprows": 2}
GRAPHS: dict[str, Callable[[Path], Graph]] = {
    "email": partial(_listed, "email", "email-Eu-core/email-Eu-core.txt", {}, undirected=False),
    "sbm": _blocks,
    "jt-1024": partial(_imbalanced, 1024),
    "deezer": _deezer,
    "chameleon": partial(_listed, "chameleon", "wikipedia-chameleon/chameleon_edges.csv", _COMMAS, undirected=True),
    "power": _power,
    "lastfm": _lastfm,
    "facebook": partial(_listed, "facebook", "facebook_combined/facebook_combined.txt", _COMMENTS, undirected=True),
    **{f"jt-{nodes}": partial(_imbalanced, nodes) for nodes in _SIZES if nodes != 1024},
    **{f"jt-power-{nodes}": partial(_imbalanced_power, nodes) for nodes in _SIZES},
    **{f"random-{nodes}": partial(_random, nodes) for nodes in _SIZES},
}
#: Graphs that constants were chosen on; the others are held back.
TUNED = ("email", "sbm", "jt-1024", "deezer")


@lru_cache(maxsize=1)
def graph(name: str, data: Path) -> Graph:
    """A graph by name.

    Raises:
        FileNotFoundError: where its file is not there.
    """
    return GRAPHS[name](data)


# Streams of questions.

#: Questions of the mixed stream, where they are fewer than 5,000.
_MIXED = {"facebook": 2000, "deezer": 1500, "lastfm": 2000, "chameleon": 2000}
STREAMS = ("mixed", "few", "communities")
_KINDS = {"random": 0.4, "sparse": 0.1, "spectral": 0.2, "communities": 0.2, "small": 0.1}


class Stream(NamedTuple):
    """Cuts, one a row, what kind each is of, and their exact answers."""

    kinds: list[str]
    lefts: BoolArray
    rights: BoolArray
    truths: FloatArray


def questions(of: Graph, stream: str) -> int:
    """How many questions a stream has."""
    return {"mixed": _MIXED.get(of.name, 5000), "few": 300, "communities": 1000}[stream]


def made(of: Graph, stream: str, seed: int) -> Stream:
    """The questions of a stream. A cut with an empty side is drawn anew."""
    rng, count = np.random.default_rng(11 + seed), questions(of, stream)
    kinds = ["communities"] * count
    if stream != "communities":
        kinds = [str(kind) for kind in rng.choice(list(_KINDS), count, p=list(_KINDS.values()))]
    lefts, rights = (np.zeros((count, side), dtype=np.bool_) for side in of.shape)
    for number, kind in enumerate(kinds):
        while not (lefts[number].any() and rights[number].any()):
            lefts[number], rights[number] = _SIDES[kind](of, rng)
    return Stream(kinds, lefts, rights, of.truths(lefts, rights))


def _random_sides(of: Graph, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Nodes with a probability between 5 and 60%, of each side one of its own."""
    left, right = (rng.random(side) < rng.uniform(0.05, 0.6) for side in of.shape)
    return left, right


def _sparse_sides(of: Graph, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """One node in fifty; one in twenty of a short right side."""
    rows, columns = of.shape
    return rng.random(rows) < 0.02, rng.random(columns) < (0.02 if columns > 500 else 0.05)


def _spectral_sides(of: Graph, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """A singular vector, most often with something of the others, rounded."""
    left, values, right = of.spectrum
    mixed = rng.standard_normal(len(values)) * 0.35 * (rng.random() < 0.7)
    mixed[rng.integers(len(values))] += 1
    return rounded(left @ mixed), rounded(rng.choice([1, -1]) * (mixed @ right))


def rounded(vector: FloatArray) -> BoolArray:
    """The nodes where a unit vector is above 0.3 of its usual size."""
    chosen: BoolArray = vector > 0.3 / np.sqrt(len(vector))
    return chosen


def _community_sides(of: Graph, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Whole communities, of both sides the same in three questions of ten."""
    left, right = of.labels
    count = 1 + max(int(left.max()), int(right.max()))
    first = rng.random(count) < rng.uniform(0.1, 0.5)
    second = first if rng.random() < 0.3 else rng.random(count) < rng.uniform(0.1, 0.5)
    return first[left], second[right]


def _small_sides(of: Graph, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Thirty nodes a side; a third of a short one."""
    sides = []
    for side in of.shape:
        chosen = np.zeros(side, dtype=np.bool_)
        chosen[rng.choice(side, min(30, side // 3), replace=False)] = True
        sides.append(chosen)
    return sides[0], sides[1]


_SIDES: dict[str, Callable[[Graph, np.random.Generator], tuple[BoolArray, BoolArray]]] = {
    "random": _random_sides,
    "sparse": _sparse_sides,
    "spectral": _spectral_sides,
    "communities": _community_sides,
    "small": _small_sides,
}


class Adversary:
    """Knows a random half of the edges and what is published; asks where twice the half differs most from it.

    Candidates are rounded leading singular vectors of the difference, with both signs of either side, and mixtures of
    them; the sides of an undirected graph's cut are made disjoint. No cut is asked twice.
    """

    #: Questions it asks.
    QUESTIONS = 150
    #: Singular vectors that are rounded, and mixtures of them tried at a time.
    _VECTORS, _MIXTURES = 6, 10

    def __init__(self, of: Graph, seed: int) -> None:
        self.of, self._rng = of, np.random.default_rng(3 + seed)
        edges = triu(of.matrix, 1).tocoo() if of.undirected else of.matrix.tocoo()
        known = self._rng.random(edges.nnz) < 0.5
        rows, columns = edges.row[known], edges.col[known]
        self._twice: SingleArray = np.zeros(of.shape, dtype=np.float32)
        self._twice[rows, columns] = 2
        if of.undirected:
            self._twice[columns, rows] = 2
        self._seen: FloatArray | SingleArray | None = None
        self._asked: set[bytes] = set()
        self._candidates: list[tuple[BoolArray, BoolArray]] = []

    def choose(self, expectation: FloatArray | SingleArray | None) -> tuple[BoolArray, BoolArray]:
        """The cut that it asks next, of what is published by now: None where nothing is."""
        published = np.zeros(self.of.shape, dtype=np.float32) if expectation is None else expectation
        if self._seen is None or not np.array_equal(published, self._seen):
            self._look(published)
        while True:
            while self._candidates:
                left, right = self._candidates.pop()
                digest = np.packbits(np.concatenate([left, right])).tobytes()
                if digest not in self._asked and left.any() and right.any():
                    self._asked.add(digest)
                    return left, right
            self._try(self._rng.standard_normal((4 * self._MIXTURES, self._VECTORS)))

    def _look(self, expectation: FloatArray | SingleArray) -> None:
        self._seen = expectation.copy()
        self._off: SingleArray = self._twice - expectation.astype(np.float32)
        self._left, _, self._right = leading(self._off, self._VECTORS, self._rng, rounds=3)
        mixtures = self._rng.standard_normal((self._MIXTURES, self._left.shape[1])) * 0.35
        mixtures[np.arange(self._MIXTURES), np.arange(self._MIXTURES) % self._left.shape[1]] += 1
        self._try(np.concatenate([np.eye(self._left.shape[1]), mixtures]))

    def _try(self, mixtures: FloatArray) -> None:
        """Cuts of these mixtures of vectors, those that differ most last."""
        mixtures /= np.linalg.norm(mixtures, axis=1, keepdims=True)
        sides = []
        for mixture in mixtures:
            left, right = self._left @ mixture, mixture @ self._right
            sides += [(rounded(a * left), rounded(b * right)) for a in (1, -1) for b in (1, -1)]
        lefts, rights = (np.array(side) for side in zip(*sides, strict=True))
        if self.of.undirected:
            both, kept = lefts & rights, self._rng.random(lefts.shape) < 0.5
            lefts, rights = lefts & ~(both & kept), rights & ~(both & ~kept)
        gaps = np.abs(cut_sums(self._off, lefts, rights, self.of.undirected))
        self._candidates = [(lefts[place], rights[place]) for place in np.argsort(gaps)]
