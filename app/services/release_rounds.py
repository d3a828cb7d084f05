"""The rounds of an iterative construction, played on the private data: each chooses by what those before it taught, or
is led by it where choices are those of a power method."""

from __future__ import annotations

from app.curator.mechanisms.protocol import Measured
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.products import Products
from app.measurements.strategy import exact_values
from app.patience import Progress
from app.releases.power import STEPS, LowRank, PowerRounds
from app.releases.rounds import Hypothesis, Rounds
from app.services.measuring import measured_all
from app.services.ports import NoisePort
from app.spaces.space import Space
from app.spaces.tensor import IntArray, PrivateTensor


def play(
    rounds: Rounds, hypothesis: Hypothesis, space: Space, data: PrivateTensor, noise: NoisePort, progress: Progress
) -> list[Measured]:
    """Play the rounds in their order. Exact counts and scores are nowhere but here.

    Args:
        rounds: their terms.
        hypothesis: what the first one is held against; it learns.
        space: that they are of.
        data: the private numbers.
        noise: of choices and measurements.
        progress: told from time to time.
    """
    exact = list(exact_values(rounds.candidates.strategies, space, data))
    made: list[Measured] = []
    for number in range(rounds.number):
        chosen = noise.choose(hypothesis.scores(rounds, exact), rounds.choice_scale)
        (measured,) = measured_all(noise, space, data, [rounds.purchase(chosen)])
        hypothesis.learn(measured.table)
        made.append(measured)
        progress((number + 1) / rounds.number)
    return made


def play_power(
    rounds: PowerRounds, hypothesis: LowRank, space: Space, data: PrivateTensor, noise: NoisePort, progress: Progress
) -> list[Measured]:
    """Play the rounds of the power method in their order.

    Args:
        rounds: their terms.
        hypothesis: what the first one is held against; it learns.
        space: that they are of.
        data: the private numbers.
        noise: of measurements.
        progress: told from time to time.
    """
    made: list[Measured] = []

    def released(buy: Purchase[Products]) -> Measurement[Products]:
        (measured,) = measured_all(noise, space, data, [buy])
        made.append(measured)
        return measured.measurement.of(Products)

    weights = rounds.start()
    for number in range(rounds.number):
        directions: list[IntArray] = []
        last: Measurement[Products] | None = None
        for step in range(STEPS):
            last = released(rounds.step_of(step, weights))
            # What the hypothesis gives is public, so it is taken off after noise was added.
            gaps = last.values - hypothesis.of(last.strategy)
            weights = rounds.spread(gaps)
            directions.append(rounds.rounded(gaps))
        hypothesis.learn(released(rounds.query_of(*directions[-2:])))
        assert last is not None
        weights = rounds.spread(last.values - hypothesis.of(last.strategy))
        progress((number + 1) / rounds.number)
    return made
