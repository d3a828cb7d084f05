"""A mechanism: which construction a session uses, and how it steps."""

from __future__ import annotations

from typing import Literal

from app.constructions.base import Step
from app.spaces.spec import Model


class Mechanism(Model):
    """The construction of a session with its parameters."""

    construction: Literal["mw", "fk"]
    step: Step = "projection"

    @property
    def fact(self) -> str | None:
        """The name of the fact about the data that the construction cannot start without, or None."""
        return "mass" if self.construction == "mw" else None
