"""Which constructions there are, and how a mechanism names one."""

from __future__ import annotations

from app.constructions.base import Construction, PublicFacts, Step
from app.constructions.frieze_kannan import FriezeKannan
from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.spaces.errors import InvalidRequest
from app.spaces.space import Space

#: Constructions whose hypothesis needs the data's mass before it can start.
NEEDS_MASS = frozenset({"mw"})


def construct(name: str, space: Space, facts: PublicFacts, step: Step, progress: float) -> Construction:
    """The named construction over a space.

    Raises:
        InvalidRequest: when there is none of that name for the space.
    """
    match name:
        case "mw":
            return MultiplicativeWeights(space, facts, step, progress)
        case "fk":
            return FriezeKannan(space, facts, step, progress)
    raise InvalidRequest(f"mechanism.construction: {name[:32]!r} is not served")
