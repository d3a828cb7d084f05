"""The choice of measurements for questions that are all known ahead: the matrix mechanism, also called factorisation.

Questions are a matrix F over the cells of a table with counts x. What is measured is another one, M, with noise of
standard deviation s; every question is answered by least squares, at a total squared error of ``s^2 tr F (M'M)^-1 F'``
(Li, Hay, Rastogi, Miklau, McGregor 2010, "Optimizing linear counting queries under differential privacy"). What the
noise must be follows from what one record moves M x by. M is chosen for the least error: it depends on the questions
and on the budget alone, and so do the errors that are told here, before anything is drawn.

*Marginals* have a closed form (:func:`for_marginals`). Their best strategy measures contrasts, one marginal after the
other (:mod:`app.measurements.rows`): Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for
noisy marginals under convex loss functions".

*Any other questions* over some thousand cells are optimised numerically (:func:`for_cells`), beside what else there is.

The answers are those of the evidence that a release becomes: nothing here is needed to read them.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import numpy as np
from scipy.sparse import csr_array

from app.keeping import Kept
from app.measurements.least_error import hierarchy, least_error, least_error_pure, rounded
from app.measurements.noise import Law, Noise, NoiseKind
from app.measurements.pricing import Adjacency
from app.measurements.record import Purchase
from app.measurements.rows import MOST_ROWS, MOST_WEIGHT_BITS, MOST_WEIGHTS, Rows, Sensitivity, contrast_sensitivity
from app.measurements.strategies.tables import MOST_ROW_CELLS, Part, TableStrategy
from app.patience import still_wanted
from app.privacy.errors import PrivacyError
from app.privacy.ledger import Amounts, total
from app.releases.errors import UnfitWorkload
from app.releases.expected import Expected, largest, proxy
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.tensor import FloatArray

#: Contrasts of so many sets of attributes are measured at most, and a marginal of so many cells.
MOST_SETS, MOST_CELLS = 1 << 12, 1 << 17
_BRANCHINGS = (2, 4, 8, 16)
#: Questions are looked at in blocks of so many numbers.
_BLOCK = 1 << 24
#: Scales have so many digits, and are raised by the last of them until their exact price fits.
_DIGITS = 15
_UP, _EXACT, _RATIO = Context(prec=_DIGITS, rounding=ROUND_CEILING), Context(prec=60), Context(prec=6)
#: Noise of a smaller or a larger scale is not bought, in whole counts.
LEAST_SCALE, GREATEST_SCALE = Decimal("0.125"), Decimal(10**15)

#: Rows that were found lately.
_KEPT_ROWS: Kept[Rows] = Kept(1 << 28, 32)
held = _KEPT_ROWS.held


class Unaffordable(PrivacyError):
    """The payment does not cover what is to be measured."""


def _up(scale: Fraction) -> Decimal:
    return _UP.divide(Decimal(scale.numerator), Decimal(scale.denominator))


@dataclass(frozen=True)
class Paying:
    """The payment of a release.

    Attributes:
        kind: the noise: Gaussian noise is paid in the Renyi sum, Laplace noise in the pure one.
        share: how much: Renyi divergence at the order, or epsilon.
        order: the ledger's Renyi order.
        gamma: in how many records neighbours differ.

    Raises:
        ValueError: for a share that is not positive.
    """

    kind: NoiseKind
    share: Decimal
    order: Decimal
    gamma: int = 1

    def __post_init__(self) -> None:
        if not self.share.is_finite() or self.share <= 0:
            raise ValueError("a release is paid with a positive share")

    def purchase(self, strategy: TableStrategy, scale: Decimal) -> Purchase[TableStrategy]:
        """A measurement with noise of this scale, and its price."""
        return Purchase.at(strategy, Noise(self.kind, scale, 0), Adjacency(self.gamma), self.order)

    def paid(self, price: Amounts) -> bool:
        """Whether the share is enough."""
        amount = price.renyi if self.kind == "gaussian" else price.pure
        return amount is not None and amount <= self.share

    def sensitivity(self, strategy: TableStrategy) -> int:
        """The sensitivity that the noise of a strategy has to hide: the squared L2 norm for Gaussian noise, the L1 norm
        for Laplace.
        """
        still_wanted()
        if self.kind == "gaussian":
            return self.gamma**2 * sum(sensitivity.squared for sensitivity in strategy.sensitivity)
        return self.gamma * sum(sensitivity.absolute for sensitivity in strategy.sensitivity)

    def fitted(
        self, strategies: Sequence[TableStrategy], scales: Sequence[float]
    ) -> tuple[Purchase[TableStrategy], ...]:
        """Measurements with noise of scales in the given ratios, as little of it as the share pays for.

        Ratios are rounded to so many digits as floats of all machines agree on, scales are rounded up, and the exact
        price of all together is no more than the share.

        Raises:
            Unaffordable: when no noise that is drawn is cheap enough.
        """
        ratios = [Fraction(_RATIO.create_decimal_from_float(scale)) for scale in scales]
        if self.kind == "gaussian":
            each = [Fraction(self.sensitivity(s)) / ratio**2 for s, ratio in zip(strategies, ratios, strict=True)]
            squared = Fraction(self.order) * sum(each) / (2 * Fraction(self.share))
            factor = _EXACT.sqrt(_EXACT.divide(Decimal(squared.numerator), Decimal(squared.denominator)))
        else:
            each = [Fraction(self.sensitivity(s)) / ratio for s, ratio in zip(strategies, ratios, strict=True)]
            whole = sum(each) / Fraction(self.share)
            factor = _EXACT.divide(Decimal(whole.numerator), Decimal(whole.denominator))
        while True:
            wanted = [_up(Fraction(factor) * ratio) for ratio in ratios]
            if max(wanted) > GREATEST_SCALE:
                raise Unaffordable("so small a share does not pay for so much: raise epsilon, or ask for less")
            kept = [max(LEAST_SCALE, scale) for scale in wanted]
            buys = tuple(map(self.purchase, strategies, kept))
            if self.paid(total(buy.price for buy in buys)):
                return buys
            factor = _EXACT.multiply(factor, 1 + Decimal(10) ** (1 - _DIGITS))


@dataclass(frozen=True, eq=False)
class Factorization:
    """A design of measurements, and the errors that come of it.

    Attributes:
        name: of what is measured, among the alternatives that were compared.
        buys: the measurements.
        price: of all of them, exactly.
        expected: errors.
    """

    name: str
    buys: tuple[Purchase[TableStrategy], ...]
    price: Amounts
    expected: Expected


# ---------------------------------------------------------------------- marginals


def for_marginals(
    workload: Mapping[Marginal, float], paying: Paying, *, public_total: bool, emphasis: float = 1.0
) -> Factorization:
    """The best measurements for marginals.

    With Gaussian noise these are contrasts of every set C of attributes within one of the workload's W (of no
    attribute: the total). Contrasts of which each cell is known with variance v_C before it is centred take
    ``p_C/v_C`` of a price, ``p_C = prod of (n_i - 1)/n_i over C``, and make the weighted sum of all squared errors
    ``sum of c_C v_C`` with

        c_C = sum over W containing C of weight_W * prod of (n_i - 1) over C / prod of n_i over W - C.

    So ``v_C`` in the ratio of ``sqrt(p_C/c_C)`` is best (by Cauchy and Schwarz), and no other matrix does better (Xiao,
    He, Zhang, Kifer 2023). With Laplace noise of scale b_C on whole contrasts of N cells the same sum is least for
    ``b_C`` in the ratio of ``(L_C N^2/c_C)^(1/3)``, L_C their L1 norm; then contrasts, the marginals themselves, and
    the one marginal of all attributes are compared by what least squares makes of them.

    Args:
        workload: marginals, and what a squared error of one of their cells weighs. An attribute is in the same cells in
            all of them.
        paying: what they are paid with.
        public_total: whether the number of records is public; then it is not measured.
        emphasis: multiplies the precisions of the contrasts of most attributes before all of them are scaled
            to the share: a fit knows more of these than what was measured of them, and less is better.

    Raises:
        UnfitWorkload: for weights that are not positive, more than ``MOST_SETS`` sets, a marginal of more than
            ``MOST_CELLS`` cells, no attribute, or an attribute in different cells (then :func:`for_cells` serves).
    """
    _check(workload)
    candidates = {"contrasts": _contrasts(workload, paying, public_total, emphasis)}
    if paying.kind == "laplace":
        candidates["marginals"] = _themselves(workload, paying)
        maximal = [m for m in workload if not any(m is not o and m in _parts(o) for o in workload)]
        candidates["largest marginals"] = _themselves(_shared(workload, maximal), paying)
        whole = _joined(list(workload))
        if whole.cells <= MOST_CELLS:
            candidates["one marginal"] = _themselves({whole: 1.0}, paying)
    found = [
        Factorization(name, buys, total(buy.price for buy in buys), _errors(workload, buys, public_total))
        for name, buys in candidates.items()
    ]
    if paying.kind == "gaussian":
        return found[0]
    return min(found, key=lambda f: _weighted(workload, f.expected))


def _check(workload: Mapping[Marginal, float]) -> None:
    cells: dict[int, object] = {}
    for marginal, weight in workload.items():
        if not (math.isfinite(weight) and weight > 0):
            raise UnfitWorkload("weights of marginals are positive")
        if marginal.cells > MOST_CELLS:
            raise UnfitWorkload(f"a marginal has at most {MOST_CELLS} cells")
        for axis, attribute in enumerate(marginal.attributes):
            if cells.setdefault(attribute, marginal.partition(axis)) != marginal.partition(axis):
                raise UnfitWorkload(f"attribute {attribute} is in the same cells in all marginals")
    if not cells:
        raise UnfitWorkload("a workload has a marginal of one attribute or more")
    if len({part for marginal in workload for part in _parts(marginal)}) > MOST_SETS:
        raise UnfitWorkload(f"marginals have at most {MOST_SETS} sets of attributes within them")


def _parts(marginal: Marginal) -> list[Marginal]:
    """A marginal on each set of its attributes, the empty one and all among them."""
    if 2 ** len(marginal.attributes) > MOST_SETS:
        raise UnfitWorkload(f"marginals have at most {MOST_SETS} sets of attributes within them")
    return [
        marginal.onto(frozenset(kept))
        for count in range(len(marginal.attributes) + 1)
        for kept in itertools.combinations(marginal.attributes, count)
    ]


def _joined(marginals: Sequence[Marginal]) -> Marginal:
    """The marginal on all attributes of some."""
    cells = {a: (n, p) for m in marginals for a, n, p in zip(m.attributes, m.sizes, m.partitions, strict=True)}
    named = sorted(cells)
    return Marginal(tuple(named), tuple(cells[a][0] for a in named), tuple(cells[a][1] for a in named))


def _seen(part: Marginal) -> float:
    """The part of a cell's variance that is left once it is centred: ``prod of (n - 1)/n``."""
    return math.prod(1 - 1 / n for n in part.shape)


def _contrasts(
    workload: Mapping[Marginal, float], paying: Paying, public_total: bool, emphasis: float
) -> tuple[Purchase[TableStrategy], ...]:
    worth: dict[Marginal, float] = {}
    for marginal, weight in workload.items():
        for part in _parts(marginal):
            gain = weight * part.cells * _seen(part) * part.cells / marginal.cells
            worth[part] = worth.get(part, 0.0) + gain
    asked = (part for part in worth if part.attributes or not public_total)
    parts = sorted(asked, key=lambda part: (len(part.attributes), part.attributes))
    strategies, scales = [], []
    most = max(len(part.attributes) for part in parts)
    for part in parts:
        sensitivity = contrast_sensitivity(part) if part.attributes else Sensitivity(1, 1)
        strategies.append(TableStrategy((Part(part, residual=bool(part.attributes)),)))
        if paying.kind == "gaussian":
            scales.append(part.cells * (_seen(part) / worth[part]) ** 0.25)
        else:
            scales.append((sensitivity.absolute * part.cells**2 / worth[part]) ** (1 / 3))
        if len(part.attributes) == most:
            scales[-1] /= math.sqrt(emphasis)
    return paying.fitted(strategies, scales)


def _themselves(workload: Mapping[Marginal, float], paying: Paying) -> tuple[Purchase[TableStrategy], ...]:
    """Marginals with the Laplace noise that makes the weighted sum of their own squared errors least."""
    scales = [(weight * marginal.cells) ** (-1 / 3) for marginal, weight in workload.items()]
    return paying.fitted([TableStrategy.of(marginal) for marginal in workload], scales)


def _shared(workload: Mapping[Marginal, float], maximal: Sequence[Marginal]) -> dict[Marginal, float]:
    """Weights of the largest marginals: their own, and those of others that are sums of their cells."""
    found = dict.fromkeys(maximal, 0.0)
    for marginal, weight in workload.items():
        owner = min((m for m in maximal if marginal in _parts(m)), key=lambda m: m.cells)
        found[owner] += weight
    return found


def _errors(
    workload: Mapping[Marginal, float], buys: Sequence[Purchase[TableStrategy]], public_total: bool
) -> Expected:
    """Errors of marginals, by least squares over measured marginals and contrasts."""
    exact = _variances_of_cells(workload, buys, public_total, lambda noise: noise.variance)
    proxies = _variances_of_cells(workload, buys, public_total, proxy)
    counts = np.array([float(marginal.cells) for marginal in workload])
    return Expected(
        each=tuple(math.sqrt(v) for v in exact.tolist()),
        rms=math.sqrt(float(exact @ counts) / float(counts.sum())),
        largest=largest(buys[0].added.kind, proxies, counts),
    )


def _weighted(workload: Mapping[Marginal, float], expected: Expected) -> float:
    """The weighted sum of squared errors."""
    return sum(weight * m.cells * rms**2 for (m, weight), rms in zip(workload.items(), expected.each, strict=True))


def _variances_of_cells(
    workload: Mapping[Marginal, float],
    buys: Sequence[Purchase[TableStrategy]],
    public_total: bool,
    variance_of: Callable[[Law], float],
) -> FloatArray:
    """The variance of a cell of each marginal: all cells of one have the same."""
    precisions: dict[Marginal, float] = {}
    for buy in buys:
        part, noise = buy.strategy.parts[0], variance_of(buy.noise)
        own = part.marginal
        for inner in [own] if part.residual else _parts(own):
            merged = own.cells // inner.cells
            precision = own.cells**2 / noise if part.residual else 1 / (noise * merged)
            precisions[inner] = precisions.get(inner, 0.0) + precision
    variances = {part: 1 / precision for part, precision in precisions.items()}
    if public_total:
        variances[Marginal((), (), ())] = 0.0
    return np.array(
        [
            sum(variances[part] * _seen(part) * (part.cells / marginal.cells) ** 2 for part in _parts(marginal))
            for marginal in workload
        ]
    )


# ---------------------------------------------------------------------- any questions over some cells


class CellWorkload(ABC):
    """Questions over cells that are numbered, each a sum with weights of its own."""

    #: Number of cells, and of questions.
    cells: int
    count: int

    @property
    @abstractmethod
    def gram(self) -> FloatArray:
        """``F'F``, F being the matrix of weights, questions by cells."""

    @property
    @abstractmethod
    def squares(self) -> FloatArray:
        """For each question the sum of its squared weights."""

    @abstractmethod
    def lengths(self, directions: FloatArray) -> FloatArray:
        """For each question w the squared length of ``w T``, T having a row for each cell."""

    @property
    def rows(self) -> Rows | None:
        """The questions as rows of whole weights, where they are such and not too many."""
        return None


@dataclass(frozen=True, eq=False)
class Questions(CellWorkload):
    """Questions listed one by one.

    Attributes:
        matrix: a row of weights for each, a column for each cell.

    Raises:
        ValueError: when it is empty, or a weight is not finite.
    """

    matrix: csr_array

    def __post_init__(self) -> None:
        matrix = csr_array(self.matrix).astype(np.float64)
        if 0 in matrix.shape or not matrix.nnz or not np.isfinite(matrix.data).all():
            raise ValueError("questions have finite weights on cells, not all zero")
        object.__setattr__(self, "matrix", matrix)

    @property
    def cells(self) -> int:  # type: ignore[override]
        return int(self.matrix.shape[1])

    @property
    def count(self) -> int:  # type: ignore[override]
        return int(self.matrix.shape[0])

    @lazy
    def gram(self) -> FloatArray:
        return np.asarray((self.matrix.T @ self.matrix).toarray())

    @lazy
    def squares(self) -> FloatArray:
        return np.asarray(self.matrix.multiply(self.matrix).sum(axis=1)).reshape(-1)

    def lengths(self, directions: FloatArray) -> FloatArray:
        step = max(1, _BLOCK // max(1, directions.shape[1]))
        blocks = (np.asarray(self.matrix[k : k + step] @ directions) for k in range(0, self.count, step))
        return np.concatenate([np.einsum("ij,ij->i", block, block) for block in blocks])

    @property
    def rows(self) -> Rows | None:
        data = self.matrix.data
        whole = bool((data == np.rint(data)).all()) and float(np.abs(data).max()) < 1 << MOST_WEIGHT_BITS
        if not whole or self.count > MOST_ROWS or self.matrix.nnz > MOST_WEIGHTS:
            return None
        return Rows.of(self.matrix)


@dataclass(frozen=True, eq=False)
class Ranges(CellWorkload):
    """All ranges: the sums of cells from i to j, for every i <= j.

    Attributes:
        cells: number of cells.
    """

    cells: int

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.cells * (self.cells + 1) // 2

    @lazy
    def gram(self) -> FloatArray:
        # Cells i <= j are both in the ranges that begin at i or before and end at j or later.
        place = np.arange(self.cells, dtype=np.float64)
        return np.asarray((np.minimum.outer(place, place) + 1) * (self.cells - np.maximum.outer(place, place)))

    @lazy
    def squares(self) -> FloatArray:
        begins, ends = np.triu_indices(self.cells)
        return (ends - begins + 1).astype(np.float64)

    def lengths(self, directions: FloatArray) -> FloatArray:
        sums = np.concatenate([np.zeros((1, directions.shape[1])), np.cumsum(directions, axis=0)])
        products = sums @ sums.T
        own = products.diagonal()
        begins, ends = np.triu_indices(self.cells)
        found = own[begins] + own[ends + 1] - 2 * products[begins, ends + 1]
        return np.asarray(np.maximum(found, 0.0))

    @property
    def rows(self) -> Rows | None:
        if self.count > MOST_ROWS or int(self.squares.sum()) > MOST_WEIGHTS:
            return None
        begins, ends = np.triu_indices(self.cells)
        place = np.arange(self.cells)
        return Rows.of((begins[:, None] <= place) & (place <= ends[:, None]))


def for_cells(marginal: Marginal, workload: CellWorkload, paying: Paying) -> Factorization:
    """The best of some measurements of the cells of a marginal for any questions of them, by exact expected error.

    Compared are the counts of all cells, the questions themselves where they are rows of whole weights, hierarchies of
    sums where the cells are those of one attribute, and rows that are optimised for the questions: see
    :func:`least_error` (up to 1,447 cells) and :func:`least_error_pure`. These are rounded to whole numbers, and what a
    record moves them by is that of the rounded ones.

    Args:
        marginal: whose cells they are, numbered row by row.
        workload: the questions.
        paying: what they are paid with.

    Raises:
        UnfitWorkload: for more than ``MOST_ROW_CELLS`` cells (2,048), or questions over others.
    """
    if workload.cells != marginal.cells or marginal.cells > MOST_ROW_CELLS:
        raise UnfitWorkload(f"questions are over the cells of the marginal, at most {MOST_ROW_CELLS}")
    found = [_measured("cells", TableStrategy.of(marginal), workload, paying)]
    for name, rows in _rows(marginal, workload, paying):
        still_wanted()
        strategy = TableStrategy((Part(marginal, rows=rows),))
        if _answers(rows, workload):
            found.append(_measured(name, strategy, workload, paying))
    return min(found, key=lambda f: f.expected.rms)


def of_rows(marginal: Marginal, rows: Rows | None, workload: CellWorkload, paying: Paying) -> Factorization:
    """The measurement of given rows over the cells of a marginal, or of all its cells.

    Args:
        marginal: whose cells they are, numbered row by row.
        rows: None for the cells.
        workload: the questions.
        paying: what it is paid with.

    Raises:
        UnfitWorkload: when the rows do not determine the questions, or are over other cells.
    """
    if rows is None:
        return _measured("cells", TableStrategy.of(marginal), workload, paying)
    strategy = TableStrategy((Part(marginal, rows=rows),))
    if workload.cells != marginal.cells or not _answers(rows, workload):
        raise UnfitWorkload("the rows do not determine all questions")
    return _measured("rows", strategy, workload, paying)


def _rows(marginal: Marginal, workload: CellWorkload, paying: Paying) -> Iterator[tuple[str, Rows]]:
    """The rows that are compared with the counts of all cells."""
    if workload.rows is not None:
        yield "questions", workload.rows
    if len(marginal.attributes) == 1:
        for branching in _BRANCHINGS:
            if branching < marginal.cells:
                yield f"hierarchy of {branching}", _hierarchy(marginal.cells, branching)
    if paying.kind == "laplace" or marginal.cells * (marginal.cells + 1) // 2 <= MOST_WEIGHTS:
        yield "optimised", _optimised(paying.kind, workload.gram)


def _hierarchy(cells: int, branching: int) -> Rows:
    return _KEPT_ROWS.get((cells, branching), lambda: Rows.of(hierarchy(cells, branching)), _rows_bytes)


def _optimised(kind: NoiseKind, gram: FloatArray) -> Rows:
    """The rows found best for some questions, whatever is paid: planning looks for them again and again."""

    def made() -> Rows:
        questions = np.ascontiguousarray(gram)
        return Rows.of(rounded(least_error_pure(questions) if kind == "laplace" else least_error(questions)))

    return _KEPT_ROWS.get((kind, gram.shape, hashlib.sha256(gram.tobytes()).digest()), made, _rows_bytes)


def _rows_bytes(rows: Rows) -> int:
    """About what rows take, with what they are inverted by."""
    return rows.weights.nbytes + rows.columns.nbytes + 8 * rows.cells**2


def _answers(rows: Rows, workload: CellWorkload) -> bool:
    """Whether rows determine all questions."""
    _, unseen = rows.inverse
    if unseen is None:
        return True
    scale = float(np.square(unseen).sum(axis=1).max(initial=0.0))
    return bool((workload.lengths(unseen) <= 1e-14 * scale * workload.squares).all())


def _measured(name: str, strategy: TableStrategy, workload: CellWorkload, paying: Paying) -> Factorization:
    (buy,) = buys = paying.fitted([strategy], [1.0])
    rows = strategy.parts[0].rows
    lengths = workload.squares if rows is None else workload.lengths(rows.inverse[0])
    exact, proxies = buy.noise.variance * lengths, proxy(buy.noise) * lengths
    expected = Expected(
        each=tuple(np.sqrt(exact).tolist()),
        rms=math.sqrt(float(exact.mean())),
        largest=largest(paying.kind, proxies, np.ones(len(proxies))),
    )
    return Factorization(name, buys, total(buy.price for buy in buys), expected)
