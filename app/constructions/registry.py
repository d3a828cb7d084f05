"""Which constructions there are, and how a mechanism names one."""

from __future__ import annotations

from app.constructions.base import Construction, PublicFacts
from app.constructions.frieze_kannan import FriezeKannan
from app.constructions.mechanism import (
    FkMechanism,
    Iterative,
    MdMechanism,
    MedianMechanism,
    MwMechanism,
    SmwMechanism,
)
from app.constructions.median import Median, SampledMedian
from app.constructions.mirror_descent import exact_norm, mirror_descent
from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.constructions.sparse_weights import SparseWeights
from app.declarations.errors import InvalidRequest
from app.spaces.space import Space


def unfit(mechanism: Iterative, space: Space) -> str | None:
    """Why a mechanism cannot serve data of this space, and what would; None where it can."""
    name = mechanism.construction
    if name == "smw":
        wide = space.extent == "addressable" and space.kind == "table"
        instead = "evidence" if wide else "fk" if space.signed else "mw"
        refusal = f"smw answers about elements of a multiset, and this is a {space.kind}: use {instead}"
        return refusal if space.extent != "unbounded" else None
    if space.extent == "unbounded":
        return f"{name} keeps a number for every cell of a finite universe; a {space.kind} is served by smw"
    if space.extent == "addressable" and len(space.shape) > 2:
        return (
            f"{name} keeps a number for each of {approximate(space.cells)} cells, {approximate(8 * space.cells)} bytes "
            "and more than can be held: use evidence, which answers from what it measures; declare fewer attributes or "
            "coarser bins; or have each question measured on its own, with gaussian or laplace"
        )
    if mechanism.entropic and space.signed:
        return (
            f"{name} spreads a mass over cells, and these entries may be negative: use fk, or md with another potential"
        )
    norm = mechanism.norm(space)
    if norm is not None and norm.family != "lp" and len(space.shape) != 2:
        return f"potential {norm.family} is one of matrices; this {space.kind} has {len(space.shape)} axes: use lp"
    return None


def missing(mechanism: Iterative, space: Space, facts: PublicFacts) -> str | None:
    """The name of the fact that must be bought before a session of this mechanism can start, or None."""
    fact = mechanism.fact(space)
    if fact is None or facts.known(fact):
        return None
    ball = mechanism.ball(space)
    return None if ball is not None and exact_norm(space, facts, ball) is not None else fact


def construct(mechanism: Iterative, space: Space, facts: PublicFacts, progress: float, queries: int) -> Construction:
    """The mechanism's construction over a space, making progress by at least ``progress`` counts an update.

    ``queries`` is the most queries that will be asked of it.

    Raises:
        InvalidRequest: when the mechanism cannot serve the space.
    """
    reason = unfit(mechanism, space)
    if reason is not None:
        raise InvalidRequest(f"mechanism.construction: {reason}")
    match mechanism:
        case MwMechanism():
            return MultiplicativeWeights(space, facts, mechanism.step, progress)
        case FkMechanism():
            return FriezeKannan(space, facts, mechanism.step, progress)
        case MdMechanism():
            norm = mechanism.norm(space)
            if norm is None:
                return MultiplicativeWeights(
                    space, facts, mechanism.step, progress, class_rate=False, zeta=mechanism.zeta
                )
            return mirror_descent(mechanism, space, facts, progress, norm)
        case SmwMechanism():
            return SparseWeights(space, facts, mechanism.step, progress, mechanism.sparsity)
        case MedianMechanism():
            kind = SampledMedian if mechanism.sampled else Median
            return kind(space, facts, mechanism.step, progress, queries, signed=mechanism.weights != "nonnegative")
    raise TypeError(f"no construction is known of {mechanism.construction}")


def approximate(size: int) -> str:
    """A whole number in words: in full while that can be read, else as a power of ten."""
    return f"{size:,}" if size < 10**15 else f"10^{len(str(size)) - 1}"
