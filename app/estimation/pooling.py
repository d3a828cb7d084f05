"""Independent estimates of the same numbers as one, each weighed by its precision: of all averages the best."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.spaces.tensor import FloatArray


@dataclass
class Pooled:
    """The joint estimate of some numbers.

    Attributes:
        values: the average.
        precision: one over the variance of each; infinite where they are known exactly.
    """

    values: FloatArray
    precision: float = 0.0

    def learn(self, values: FloatArray, precision: float) -> None:
        """Average independent values in, but for those of what is known exactly."""
        if self.precision < math.inf:
            self.precision += precision
            self.values = self.values + (values - self.values) * (precision / self.precision)
