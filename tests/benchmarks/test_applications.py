"""The pieces of the applications' benchmark at tiny sizes, against brute force and the constructions' own figures."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.constructions.base import PublicFacts
from app.constructions.mechanism import parse_mechanism
from app.constructions.registry import construct
from app.spaces.tensor import DenseTensor
from benchmarks.harness import report
from benchmarks.research import applications, applications_measure, applications_play, applications_real
from benchmarks.research.applications_data import (
    bipartite,
    graph_data,
    imbalanced_degrees,
    low_rank,
    matrix_data,
    power_law_degrees,
    table_data,
)
from benchmarks.research.applications_measure import (
    cuts,
    gaussian_queries,
    linear_queries,
    matrices,
    plain,
    plain_matrices,
    randomised,
    with_norm,
)
from benchmarks.research.applications_play import (
    CutAnalyst,
    DenseAnalyst,
    FreeCutAnalyst,
    Game,
    PairAnalyst,
    Played,
    RangeAnalyst,
    SubsetAnalyst,
    Terms,
    attack,
    needed,
)
from benchmarks.research.applications_theory import (
    PROMISES,
    Degrees,
    exponents,
    gaussian,
    group_overtakes,
    laplace,
    least_epsilon,
    noise_scale,
    promise,
    root_law,
    schatten_promise,
)
from benchmarks.service import constructions

pytestmark = [pytest.mark.unit, pytest.mark.slow]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded noise of the same law in the place of the system's: now and then a game ends otherwise than most."""
    rng = np.random.default_rng(1)

    class Seeded:
        def __init__(self, scale: Any) -> None:
            self._stop = -math.expm1(-1 / float(scale))

        def take(self, count: int) -> Any:
            return rng.geometric(self._stop, count) - rng.geometric(self._stop, count)

    for module in (applications_measure, applications_play):
        monkeypatch.setattr(module, "DiscreteLaplace", Seeded)


def subsets(count: int) -> list[list[int]]:
    return [list(s) for size in range(count + 1) for s in itertools.combinations(range(count), size)]


class TestData:
    def test_imbalanced(self, rng: np.random.Generator) -> None:
        """Would catch another graph than JT12's: V^(3/4) nodes joined to all, the others to V^(1/2)."""
        matrix = bipartite(imbalanced_degrees(256), rng)
        assert sorted(matrix.sum(axis=1).tolist()) == [16] * (256 - 64) + [256] * 64

    @pytest.mark.parametrize("beta", [1.1, 1.4])
    def test_power_law(self, beta: float) -> None:
        """Would catch degrees whose frequencies are not i^-beta: each count is off by less than two nodes."""
        nodes = 512
        degrees = power_law_degrees(nodes, beta)
        total = sum(j**-beta for j in range(1, nodes + 1))
        counts = np.bincount(degrees, minlength=nodes + 1)
        assert all(abs(counts[i] - nodes * i**-beta / total) < 2 for i in range(1, nodes + 1))

    def test_low_rank(self, rng: np.random.Generator) -> None:
        """Would catch a matrix out of its bounds, off its grid, or of another rank than asked (beyond rounding)."""
        matrix = low_rank(40, 10, 2, rng)
        values = np.linalg.svd(matrix, compute_uv=False)
        assert np.abs(matrix).max() == 0.5
        assert values[2] < 0.01 * values[0]
        assert np.array_equal(matrix_data(matrix, 1.0).counts, matrix)


class TestPromises:
    """The formulas of the predictions are those of the constructions."""

    @pytest.mark.parametrize("construction", ["mw", "fk", "group"])
    def test_bound(self, construction: str, rng: np.random.Generator) -> None:
        """Would catch a predicted number of updates that the construction itself does not promise."""
        degrees, size, alpha = imbalanced_degrees(64), 4, 37.0
        mechanism = {
            "mw": {"construction": "md", "potential": "entropy", "zeta": 0.5},
            "fk": {"construction": "md", "potential": "lp", "p": 2.0, "zeta": math.sqrt(64 * size)},
            "group": {"construction": "md", "potential": "group", "axis": "rows", "ball_p": "auto"},
        }[construction]
        if construction == "group":
            mechanism["zeta"] = math.sqrt(size) * 64 ** (1 / math.log(64))
        data = with_norm(graph_data(bipartite(degrees, rng), 1.0), mechanism)
        facts = PublicFacts(data.public.records, norms=data.public.facts.norms)
        own = construct(parse_mechanism(mechanism), data.public.space, facts, alpha, 10).bound(alpha)
        assert own == pytest.approx(PROMISES[construction](Degrees.of(degrees), size)(alpha), rel=1e-9)

    def test_schatten_bound(self, rng: np.random.Generator) -> None:
        """Would catch a promise of the Schatten norm that the construction does not make for cuts of rank one."""
        size, alpha = 4, 37.0
        mechanism = {"construction": "md", "potential": "schatten", "ball_p": "auto", "zeta": math.sqrt(64 * size)}
        data = with_norm(graph_data(bipartite(imbalanced_degrees(64), rng), 1.0), mechanism)
        facts = PublicFacts(data.public.records, norms=data.public.facts.norms)
        own = construct(parse_mechanism(mechanism), data.public.space, facts, alpha, 10).bound(alpha)
        singular = np.linalg.svd(data.counts, compute_uv=False)
        assert own == pytest.approx(schatten_promise(singular, 64 * size)(alpha), rel=1e-6)

    def test_fixed_point(self) -> None:
        """Would catch a plan that is not the least with bound(alpha(B)) <= B, or whose error is not 4L."""
        rounds = 10.0
        found = promise(lambda alpha: 1e8 / alpha**2, 1.0, 1e-6, rounds)

        def meets(updates: int) -> bool:
            return 1e8 / (2 * noise_scale(1.0, 1e-6, updates) * rounds) ** 2 <= updates

        assert meets(found.updates)
        assert not meets(found.updates - 1)
        assert found.error == pytest.approx(4 * noise_scale(1.0, 1e-6, found.updates) * rounds)

    def test_root_law(self) -> None:
        """Would catch a closed form that is not the fixed point: at many updates b is c sqrt(B)."""

        def bound(alpha: float) -> float:
            return 1e16 / alpha**2

        exact = promise(bound, 1.0, 1e-6, 10.0)
        constant = noise_scale(1.0, 1e-6, exact.updates) / math.sqrt(exact.updates)
        assert exact.error == pytest.approx(math.sqrt(constant) * root_law(bound, 10.0), rel=1e-3)

    @pytest.mark.slow
    def test_least_epsilon(self) -> None:
        """Would catch a search that ends beside the epsilon at which the promise passes the error."""

        def bound(alpha: float) -> float:
            return 1e7 / alpha**2

        found = least_epsilon(bound, 1e-6, 12.0, 500.0)
        assert found is not None
        assert promise(bound, found, 1e-6, 12.0).error <= 500 < promise(bound, found / 1.1, 1e-6, 12.0).error

    def test_group_overtakes(self) -> None:
        """Would catch a crossing of the wrong order: the group norm's constant is beaten late, but it is."""
        assert 12 < group_overtakes() < 80


class TestExponents:
    def test_known_powers(self, rng: np.random.Generator) -> None:
        """Would catch swapped factors, or intervals that do not hold the truth."""
        factors = [(v, s) for v in (64, 128, 256, 512) for s in (8, 16, 32) for _ in range(5)]
        values = [3 * v**0.625 * s**0.25 * math.exp(0.05 * rng.standard_normal()) for v, s in factors]
        first, second = exponents(factors, values)
        assert first.low < 0.625 < first.high
        assert second.low < 0.25 < second.high
        assert first.high - first.low < 0.1

    def test_too_few(self) -> None:
        """Would catch a slope invented from points that do not fix one."""
        assert all(math.isnan(e.power) for e in exponents([(2, 3), (4, 3)], [1, 2]))


class TestAnalysts:
    def test_one_sided_cut_is_the_worst(self, rng: np.random.Generator) -> None:
        """Would catch an analyst of the papers' class who overlooks a larger gap."""
        residual = rng.standard_normal((6, 8))
        analyst = CutAnalyst(graph_data(np.ones((6, 8), dtype=np.int64), 1.0), 3, one_sided=True)
        worst = max(abs(residual[:, list(s)].sum()) for s in itertools.combinations(range(8), 3))
        assert analyst.choose(residual, None, rng).gap == pytest.approx(worst)

    @pytest.mark.parametrize("size", [3, None])
    def test_cut_against_all_cuts(self, size: int | None, rng: np.random.Generator) -> None:
        """Would catch gaps that are not the query's own, and a search that is often far below the worst cut."""
        data = graph_data(np.ones((6, 7), dtype=np.int64), 1.0)
        analyst = FreeCutAnalyst(data) if size is None else CutAnalyst(data, size, one_sided=False)
        ratios = []
        for _ in range(30):
            residual = rng.standard_normal((6, 7))
            rights = [s for s in subsets(7) if size is None or len(s) == size]
            sums = np.array([residual[:, s].sum(axis=1) for s in rights])
            worst = max(np.maximum(sums, 0).sum(axis=1).max(), np.maximum(-sums, 0).sum(axis=1).max())
            chosen = analyst.choose(residual, None, rng)
            assert chosen.gap == pytest.approx(abs(chosen.query.inner(DenseTensor(residual))))
            ratios.append(chosen.gap / worst)
        assert max(ratios) <= 1 + 1e-9
        assert np.mean(ratios) > 0.9

    @pytest.mark.parametrize("one_sided", [True, False])
    def test_slow_cut_is_just_above_its_target(self, one_sided: bool, rng: np.random.Generator) -> None:
        """Would catch a slow analyst whose query falls short of the target, or is the worst one all the same."""
        residual = rng.standard_normal((30, 40))
        if not one_sided:
            residual -= residual.mean(axis=0)  # all left nodes together gain nothing, so any target can be met
        analyst = CutAnalyst(graph_data(np.ones((30, 40), dtype=np.int64), 1.0), 5, one_sided)
        target = analyst.choose(residual, None, rng).gap / 2
        chosen = analyst.choose(residual, target, rng)
        assert target <= chosen.gap
        assert chosen.gap == pytest.approx(abs(chosen.query.inner(DenseTensor(residual))))
        assert chosen.gap < 1.5 * target

    def test_range_is_the_worst(self, rng: np.random.Generator) -> None:
        """Would catch a maximum-sum search that misses an end, or a sign."""
        analyst = RangeAnalyst(table_data(np.ones(9, dtype=np.int64), 1.0))
        for _ in range(30):
            residual = rng.standard_normal(9)
            worst = max(abs(residual[i:j].sum()) for i in range(9) for j in range(i + 1, 10))
            chosen = analyst.choose(residual, None, rng)
            assert chosen.gap == pytest.approx(worst)
            assert abs(chosen.query.inner(DenseTensor(residual))) == pytest.approx(worst)

    def test_subset_is_the_worst(self, rng: np.random.Generator) -> None:
        """Would catch a subset that is not all cells of one sign."""
        analyst = SubsetAnalyst(table_data(np.ones(7, dtype=np.int64), 1.0))
        residual = rng.standard_normal(7)
        worst = max(abs(residual[s].sum()) for s in subsets(7))
        assert analyst.choose(residual, None, rng).gap == pytest.approx(worst)

    def test_pair_has_its_gap(self, rng: np.random.Generator) -> None:
        """Would catch a predicate on other attributes than the marginal it was chosen on."""
        analyst = PairAnalyst(table_data(np.ones((2, 3, 4), dtype=np.int64), 1.0))
        for _ in range(10):
            residual = rng.standard_normal((2, 3, 4))
            chosen = analyst.choose(residual, None, rng)
            assert abs(chosen.query.inner(DenseTensor(residual))) == pytest.approx(chosen.gap)

    def test_dense_is_the_worst(self, rng: np.random.Generator) -> None:
        """Would catch a dense query that is not the signs, or a slow one that falls short of its target."""
        residual = rng.standard_normal((8, 5))
        analyst = DenseAnalyst(matrix_data(np.full((8, 5), 0.5), 1.0))
        worst = analyst.choose(residual, None, rng)
        assert worst.gap == pytest.approx(np.abs(residual).sum())
        slow = analyst.choose(residual, worst.gap / 2, rng)
        assert worst.gap / 2 <= slow.gap < worst.gap
        for chosen in (worst, slow):
            assert abs(chosen.query.inner(DenseTensor(residual))) == pytest.approx(chosen.gap)
            assert chosen.query.norm2sq == pytest.approx(40)


class TestPlay:
    def test_needed(self) -> None:
        """Would catch a search that ends above or below the least number of updates that suffices.

        Needs fall as the noise grows with the updates, or stay.
        """
        for truth, guess, power in itertools.product((1, 2, 37, 900), (1, 16, 1000), (0.0, 1.0)):

            def run(updates: int, truth: int = truth, power: float = power) -> Played:
                need = truth * (truth / updates) ** power
                exhausted = need > updates
                return Played(updates, updates if exhausted else math.floor(need), 0, 0.0, 0.0, 0.0, exhausted)

            found = needed(run, 2000, guess)
            assert found is not None
            assert truth <= found.updates <= max(truth + 1, 1.11 * truth)
        assert needed(lambda updates: Played(updates, updates, 0, 0.0, 0.0, 0.0, True), 50, 4) is None

    def test_known_questions_are_no_gap(self, rng: np.random.Generator) -> None:
        """Would catch an analyst who counts as a gap left what the cache answers, or asks the same again."""
        data = graph_data(bipartite(imbalanced_degrees(24), rng), 100.0)
        game = Game(data, {"construction": "fk"}, Terms(100.0, 10**4), 60)
        query = CutAnalyst(data, 4, one_sided=True).random(rng)
        assert not game.knows(query)
        game.ask(query)
        assert game.knows(query)
        game.ask(query)
        assert game.asked == 1
        played = attack(game, CutAnalyst(data, 4, one_sided=True), rng, slow=False)
        assert played.asked == game.asked == game.session.queries_asked

    def test_bounds_hold(self, rng: np.random.Generator) -> None:
        """Would catch a game that keeps its answers' errors wrongly: none passes T + L (but for beta)."""
        data = graph_data(bipartite(imbalanced_degrees(48), rng), 100.0)
        for slow in (True, False):
            game = Game(data, {"construction": "fk"}, Terms(100.0, 10**4, beta=1e-6), 60)
            played = attack(game, CutAnalyst(data, 6, one_sided=False), rng, slow)
            assert played.used > 3
            assert game.largest_error <= game.plan.error_bound

    def test_silent_game_reaches_its_threshold(self, rng: np.random.Generator) -> None:
        """Would catch noise in a game without noise: all gaps end at or below T, exactly."""
        data = graph_data(bipartite(imbalanced_degrees(32), rng), 1.0)
        game = Game(data, {"construction": "fk"}, Terms(1.0, 10**4), 10**4, threshold=10.0)
        analyst = CutAnalyst(data, 8, one_sided=True)
        played = attack(game, analyst, rng, slow=False)
        assert not played.exhausted
        assert played.used > 1
        assert analyst.choose(data.counts - game.hypothesis(), None, rng).gap <= 10.0


class TestPlainLines:
    def test_gaussian_and_laplace(self) -> None:
        """Would catch lines that do not grow as roots of k, or a Laplace line worse than plain composition."""
        few, many = gaussian(1.0, 1e-6, 100, 0.05), gaussian(1.0, 1e-6, 10_000, 0.05)
        assert many.scale / few.scale == pytest.approx(10, rel=1e-6)
        assert many.largest < many.bound
        assert laplace(1.0, 1e-6, 1, 0.05).scale == 1.0
        ratio = laplace(1.0, 1e-6, 10**6, 0.05).scale / laplace(1.0, 1e-6, 10**4, 0.05).scale
        assert ratio == pytest.approx(10, rel=0.02)

    def test_randomised_response(self) -> None:
        """Would catch a randomised response that is biased, or of another variance than e^eps/(e^eps-1)^2."""
        told = randomised(np.repeat([0.0, 1.0], 50_000), 1.0)
        zeros, ones = told[:50_000], told[50_000:]
        assert abs(zeros.mean()) < 0.03
        assert abs(ones.mean() - 1) < 0.03
        assert zeros.var() == pytest.approx(math.e / (math.e - 1) ** 2, rel=0.05)


class TestTasks:
    """Every measurement runs at a tiny size and gives the figures that tables and plots read."""

    NODES = (12, 16, 20)
    SIZE = replace(applications.QUICK, nodes=NODES, columns=(4, 6, 8), size=4, betas=())

    def shown(self, section: str, rows: list[applications.Row], folder: Path) -> None:
        """Prints a section's tables and draws its plots."""
        assert not any(map(applications._broken, rows))
        for name, draw in applications.tables(section, rows, self.SIZE, applications.Output(None, None)).items():
            draw(folder / name)

    @pytest.mark.slow
    def test_tables_and_plots_of_cuts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch a table or a plot that no longer fits what is measured."""
        pytest.importorskip("matplotlib")
        # Searches take most of the time, and have a test of their own.
        monkeypatch.setattr(applications, "least_epsilon", lambda *_: 12.5)
        terms = Terms(100.0, 10**6)
        rows = [
            row
            for family, name in itertools.product(("imbalanced", "imbalanced, S alone, nested"), ("fk", "schatten"))
            for row in cuts(family, 4, name, "rdp", self.NODES, (0,), terms)
        ]
        rows += cuts("imbalanced", 4, "group", "rdp", (16,), (0,), terms, "paper")
        for family, right in (("imbalanced", 4), ("imbalanced", None)):
            rows += cuts(family, right, "mw", "jt2012", self.NODES, (0,), terms)
            rows += plain(family, self.NODES, right, (0,), terms)
        self.shown("cuts", rows, tmp_path)
        drawn = {path.name for path in tmp_path.iterdir()}
        assert drawn >= {f"{name}.{kind}" for name in ("growth", "duel") for kind in ("png", "svg")}

    @pytest.mark.slow
    def test_tables_and_plots_of_matrices(self, tmp_path: Path) -> None:
        """Would catch the same."""
        pytest.importorskip("matplotlib")
        rows = [
            row
            for name in ("fk", "group", "schatten")
            for n in (4, 5)
            for row in gaussian_queries(name, n, 1, (0, 1), 0.5)
        ]
        rows += matrices("schatten", "rdp", self.SIZE.columns, 1, (0,), Terms(300.0, 10**6))
        rows += plain_matrices(self.SIZE.columns, 1, (0,), Terms(300.0, 10**6))
        self.shown("rank", rows, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} >= {"rank.png", "rank.svg"}

    @pytest.mark.slow
    def test_tables_and_plots_of_linear_queries(self, tmp_path: Path) -> None:
        """Would catch the same."""
        pytest.importorskip("matplotlib")
        size = self.SIZE
        rows = [
            row
            for name, records in itertools.product(("mw", "fk"), size.records)
            for row in linear_queries(name, records, size.cells[0], size.support, 10**6, (0,), 1.0)
        ]
        rows += [row for name in ("mw", "median") for row in linear_queries(name, 1_000, 4, 2, 16, (0,), 1.0)]
        self.shown("linear", rows, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} >= {"linear.png", "linear.svg"}

    def test_contest(self) -> None:
        """Would catch figures of a table of mechanisms under another's name, or a power that is not that of V."""
        common = {"construction": "fk", "epsilon": 1.0, "error_bound": 9.0, "updates": 2, "used": 1}
        rows = [
            common | {"calibration": "rdp", "nodes": n, "seed": 0, "largest_error": n**1.5, "random_error": 3.0}
            for n in (16, 32, 64)
        ]
        rows += [
            {"construction": "zero answer", "epsilon": 1.0, "nodes": n, "seed": s, "largest_error": 2.0 * n**1.5}
            for n in (16, 32, 64)
            for s in (0, 1)
        ]
        columns = applications._contest_columns((16, 32, 64))
        table = [dict(zip(columns, row, strict=True)) for row in applications._contest(rows, (), (16, 32, 64))]
        fk, zero = table[0], table[1]
        assert (fk["mechanism"], fk["V = 32"], fk["of zero answer"], fk["updates planned"]) == ("fk", 32**1.5, 0.5, 2)
        assert fk["V: error"].startswith("1.50")
        assert (zero["mechanism"], zero["seeds"], zero["V = 64"]) == ("zero answer", "2", 1024)
        assert {row["mechanism"] for row in table[2:]} == {"independent Gaussian", "independent Laplace"}

    def test_interrupted(self, tmp_path: Path) -> None:
        """Would catch a run cut short that is taken for whole, or does not go on from before."""
        task = applications.Task("linear", linear_queries, ("mw", 1_000, 4, 2, 16, (0,), 1.0))
        other = replace(task, arguments=("mw", 1_000, 4, 2, 16, (1,), 1.0))
        assert applications.run(task, 0.0, tmp_path) is None
        rows = applications.run(task, time.time() + 60, tmp_path)
        assert rows
        assert applications.run(task, 0.0, tmp_path) == rows
        assert applications.run(other, 0.0, tmp_path) is None

    def test_refused_median(self) -> None:
        """Would catch a benchmark that stops where the exact median mechanism is refused, instead of saying so."""
        (row,) = linear_queries("median", 100_000, 64, 16, 10**6, (0,), 1.0)
        assert "refused" in row

    def test_same_games_by_group_and_fk(self, rng: np.random.Generator) -> None:
        """For cuts with all left nodes every row of theta is the same, so group norm and FK make one hypothesis."""
        data = graph_data(bipartite(imbalanced_degrees(32), rng), 1.0)
        group = {"construction": "md", "potential": "group", "axis": "rows"}
        games = [Game(data, m, Terms(1.0, 10**4), 10**4, threshold=5.0) for m in ({"construction": "fk"}, group)]
        analyst = CutAnalyst(data, 4, one_sided=True)
        for _ in range(40):
            query = analyst.random(rng)
            assert games[0].ask(query)[0] == games[1].ask(query)[0]
        assert games[0].session.updates_used > 3
        assert np.allclose(games[0].hypothesis(), games[1].hypothesis(), atol=1e-9)


class TestRealData:
    @pytest.mark.parametrize("sparsity", [1, 8])
    def test_words(self, sparsity: int, rng: np.random.Generator) -> None:
        """Would catch a multiset trial whose chosen queries are not the furthest, or whose answers break the bound."""
        names = [f"w{i}" for i in range(300)]
        counts = np.sort(rng.integers(1, 10**6, 300))[::-1]
        corpus = applications_real.Words(names, counts, 10.0, sparsity)
        (row,) = applications_real.words_trial(corpus, 10.0, 10**5, 0, 20, 50, 512, 0.0)
        assert row["start_error"] > row["error_bound"]
        assert not applications._broken(row)

    def test_absent(self, tmp_path: Path) -> None:
        """Would catch a benchmark that fails where there is no real data."""
        for name, source in applications_real.SOURCES.items():
            assert not list(applications_real.trial(name, next(iter(source.mechanisms)), str(tmp_path), 1.0, 10**6, 0))
        assert not list(applications_real.words(str(tmp_path), 1.0, 10**6, 8, 0))

    def test_seeds_together(self) -> None:
        """Would catch means for medians, and a worst answer that is the middle seed's or a part of another's bound."""
        shared_by_all = {"data": "d", "mechanism": "mw", "cells": None}
        figures = (
            (100.0, 10.0, 70.0, None, "no gap"),
            (200.0, 90.0, 20.0, 7, "patience"),
            (600.0, 30.0, 300.0, 9, "no gap"),
        )
        names = ("error_bound", "random_error", "adaptive_error", "overtakes", "ended")
        rows = [shared_by_all | dict(zip(names, each, strict=True)) for each in figures]
        (one,) = applications_real.over_seeds(rows)
        assert one["error_bound"] == 200.0
        assert one["random_error"] == 30.0
        assert one["overtakes"] is None
        assert one["ended"] == "no gap 2, patience 1"
        assert one["worst_part"] == 0.7
        assert one["seeds"] == 3
        assert applications_real.over_seeds(rows[::-1])[0]["overtakes"] is None

    def test_ranges(self, shared: Path) -> None:
        """Would catch a trial on a real histogram that breaks its bound or measures nothing. Of other draws of noise
        three in fourteen leave a gap so little above the threshold that it is given up.
        """
        (row,) = applications_real.trial("dpbench HEPTH", "mw", str(shared / "data"), 1.0, 10**6, 0, 200)
        assert row["mass"] == 347_414
        assert 0 < row["used"] < row["asked"] / 2
        assert row["ended"] == "no gap"
        assert not applications._broken(row)


class TestConstructions:
    @pytest.mark.parametrize("name", ["mw", "fk", "md lp", "md group", "md schatten", "smw"])
    def test_measured(self, name: str) -> None:
        """Would catch a construction that the speed benchmark can no longer drive."""
        case = next(case for case in constructions._cases([10**4]) if case.name == name)
        row = constructions.measure(case)
        assert row[0] == name
        assert row[4] > 0
        assert row[6] > 0


def test_report_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a smoke run that overwrites results."""
    monkeypatch.setattr("benchmarks.harness.RESULTS", tmp_path)
    report("x", "title", ["a"], [[1.0]], folder=None)
    assert not list(tmp_path.iterdir())
    report("x", "title", ["a"], [[1.0]], folder=tmp_path / "new")
    assert (tmp_path / "new" / "x.json").is_file()
