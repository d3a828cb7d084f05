"""How far predictions were off where something was measured, which corrects the standard errors of later ones.

A score is what the square of a prediction's error lies above the variance of the measurement that told it, over the
square of the standard error that was foretold: about 1 where predictions are as good as they say. The mean of the last
ones is drawn to 1, as the first few tell little, and held within bounds.
"""

from __future__ import annotations

import math
from collections import deque

#: How many past scores are looked at, what the first few weigh against, and what each is held to.
_SCORED, _PRIOR = 50, 10.0
_LEAST, _MOST = -1.0, 6.0
#: What the mean square is held below.
_MOST_KAPPA = 4.0


class Scores:
    """The last scores.

    Args:
        least: what the mean square is held above.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._last: deque[float] = deque(maxlen=_SCORED)

    def learn(self, squared: float, noise: float, foretold: float) -> None:
        """Learn from a measurement.

        Args:
            squared: the square of what was measured less what was predicted, of several numbers their mean.
            noise: the variance of the measurement.
            foretold: the standard error of the prediction; of one that was certain nothing is learnt.
        """
        if foretold > 0:
            self._last.append(min(max((squared - noise) / foretold**2, _LEAST), _MOST))

    @property
    def kappa(self) -> float:
        """The factor of predictions' standard errors."""
        square = (_PRIOR + sum(self._last)) / (_PRIOR + len(self._last))
        return math.sqrt(min(max(square, self._least), _MOST_KAPPA))
