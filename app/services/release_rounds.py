"""The rounds of an iterative construction, played on the private data: each chooses by what those before it taught."""

from __future__ import annotations

from app.curator.counting import all_exact_values
from app.curator.mechanisms import Measured
from app.releases.finishing import Progress
from app.releases.rounds import Hypothesis, Rounds
from app.services.measuring import measured_all
from app.services.ports import NoisePort
from app.spaces.tensor import PrivateTensor


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
