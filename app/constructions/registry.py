"""Which constructions there are, and how a mechanism names one."""

from __future__ import annotations

from app.constructions.base import Construction, PublicFacts
from app.constructions.frieze_kannan import FriezeKannan
from app.constructions.mechanism import Mechanism
from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.spaces.errors import InvalidRequest
from app.spaces.space import Space


def construct(mechanism: Mechanism, space: Space, facts: PublicFacts, progress: float) -> Construction:
    """The mechanism's construction over a space, making progress by at least ``progress`` counts an update.

    Raises:
        InvalidRequest: when there is none of that name for the space.
    """
    match mechanism.construction:
        case "mw":
            return MultiplicativeWeights(space, facts, mechanism.step, progress)
        case "fk":
            return FriezeKannan(space, facts, mechanism.step, progress)
    raise InvalidRequest(f"mechanism.construction: {mechanism.construction!r} is not served")
