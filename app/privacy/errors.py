"""The refusals of the privacy kernel."""

from decimal import Decimal


class PrivacyError(Exception):
    """Base of every refusal of the privacy kernel. Messages carry public parameters only."""


class InvalidBudget(PrivacyError, ValueError):
    """A privacy parameter (epsilon, delta, order, share, count) that no guarantee can be built on."""


class InvalidEvent(PrivacyError, ValueError):
    """A privacy event, or noise, with a parameter outside its meaning, or not exact (a float)."""


class InfiniteCost(PrivacyError):
    """An event has no finite Renyi cost at this order, or none that this kernel evaluates: it must be refused."""


class InsufficientBudget(PrivacyError):
    """An amount that would pass what is left.

    Attributes:
        requested: the amount asked for, in the ledger's unit (Renyi divergence at the data set's order).
        remaining: what could have been granted, same unit.
    """

    def __init__(self, requested: Decimal, remaining: Decimal) -> None:
        super().__init__(f"requested {requested}, remaining {remaining}")
        self.requested = requested
        self.remaining = remaining
