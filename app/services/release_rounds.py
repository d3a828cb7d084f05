"""The rounds of an iterative construction, played on the private data: each chooses by what those before it taught, or
is led by it where choices are those of a power method."""

from __future__ import annotations

from app.curator.counting import all_exact_values
from app.curator.mechanisms import Measured
from app.measurements.strategies.products import ProductBuy, ProductRelease
from app.privacy.ledger import Amounts
from app.releases.finishing import Progress
from app.releases.power import STEPS, LowRank, PowerRounds
from app.releases.rounds import Hypothesis, Rounds
from app.services.measuring import measured_all
from app.services.ports import NoisePort
from app.spaces.tensor import IntArray, PrivateTensor


def play(
    rounds: Rounds, hypothesis: Hypothesis, data: PrivateTensor, noise: NoisePort, progress: Progress
) -> list[Measured]:
    """What the rounds measure, in their order. Exact counts and scores are nowhere but here.

    Args:
        rounds: their terms.
        hypothesis: what the first one is held against; it learns.
        data: the private numbers.
        noise: of choices and measurements.
        progress: told from time to time.
    """
    candidates = rounds.candidates
    exact = all_exact_values(candidates.strategies, data)
    made: list[Measured] = []
    for number in range(rounds.number):
        buy = rounds.buy(noise.choose(hypothesis.scores(rounds, exact), rounds.choice_scale))
        (measured,) = measured_all(noise, data, [(buy, rounds.price)])
        hypothesis.learn(measured.table)
        made.append(measured)
        progress((number + 1) / rounds.number)
    return made


def play_power(
    rounds: PowerRounds, hypothesis: LowRank, data: PrivateTensor, noise: NoisePort, progress: Progress
) -> list[Measured]:
    """What the rounds of the power method measure, in their order.

    Args:
        rounds: their terms.
        hypothesis: what the first one is held against; it learns.
        data: the private numbers.
        noise: of measurements.
        progress: told from time to time.
    """
    made: list[Measured] = []

    def released(buy: ProductBuy, price: Amounts) -> ProductRelease:
        (measured,) = measured_all(noise, data, [(buy, price)])
        made.append(measured)
        assert isinstance(measured.release, ProductRelease)
        return measured.release

    weights = rounds.start()
    for number in range(rounds.number):
        directions: list[IntArray] = []
        last: ProductRelease | None = None
        for step in range(STEPS):
            last = released(rounds.step_of(step, weights), rounds.step_price)
            # What the hypothesis gives is public, so it is taken off after noise was added.
            gaps = last.values - hypothesis.of(last.strategy)
            weights = rounds.spread(gaps)
            directions.append(rounds.rounded(gaps))
        hypothesis.learn(released(rounds.query_of(*directions[-2:]), rounds.query_price))
        assert last is not None
        weights = rounds.spread(last.values - hypothesis.of(last.strategy))
        progress((number + 1) / rounds.number)
    return made
