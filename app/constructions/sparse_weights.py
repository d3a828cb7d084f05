"""Sparse multiplicative weights: MW for queries of few non-zeros over an unbounded universe.

Source: lecture 13, definition 3, algorithm 1 and theorem 4 (after Blum and Roth 2011), with its evaluation of elements
that have no slot and its potential repaired as below.

**Slots.** A distribution over ``s`` slots stands for one over the universe. Elements are assigned slots as updates
touch them; free slots all hold the same mass at all times, so they are one number and a count, whatever ``s`` is. An
element without a slot counts what a free slot does.

**Why it works.** Write ``a = alpha/n``. Fix a sequence of updates and the slots its elements hold in the end, and
let p be the distribution over slots that gives an element's slot its share x/n of the data and spreads all other mass
evenly over the slots that are free in the end. As an element weighs the same before and after it takes a slot, and
free slots are alike, ``<f, h> = n <q, D>`` and ``<f, x> = n <q, p>`` at every update, q being the query's weights on
the final slots. So an update is one of MW against the fixed target p, whose relative entropy to the uniform start is
at most ln s:

- the lecture's step, ``exp(+-(a/2) q)``, lowers KL(p || D) by ``a^2/4`` (``exp(y) <= 1 + y + y^2`` for |y| <= 1, and
  so for weights of either sign): at most ``4 ln s / a^2`` updates;
- the entropic projection on ``{D: +-<q, D> >= +-target/n}``, which holds p, lowers it by ``KL(D' || D) >= a^2/2``
  (Pythagoras, then Pinsker on a move of the answer by a): at most ``2 ln s / a^2`` updates.

With ``c`` the 4 or the 2, s is the smallest integer with ``s/(ln s + 1) >= c m/a^2``; then m slots an update never
take all: ``m c ln s/a^2 < s``, so a free slot is left to hold the other mass and running out of slots is excluded.

**A padded mass.** Where n is an upper bound, the difference belongs to no element. It is more of the other mass: the
free slots hold it, and no slack cell is needed. (MW needs one, because there every cell may be asked about; here most
slots stand for elements that nobody names.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from app.bisection import least_integer
from app.constructions.base import (
    PARTS_BYTES,
    Construction,
    ListedHypothesis,
    MeasuredQuery,
    PublicFacts,
    Step,
    certified,
    simplex_reach,
)
from app.constructions.dumps import Dump, numbers
from app.geometry.potentials import tilted_line
from app.geometry.projections import solve
from app.spaces.errors import InvalidQuery
from app.spaces.queries.elements import CompiledElements
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import FloatArray

#: No slot falls below this fraction of the mass, so that one that measurements drove down can come back. Raising a slot
#: to it lowers the relative entropy of any data to the hypothesis, but for a part in 2^200 that the others give.
FLOOR = 2.0**-300
#: What an element with its slot takes in memory, about: a short string, an entry of a dictionary, a number.
ELEMENT_BYTES = 256


class OutOfSlots(Exception):
    """An update needs more slots than are free. The update bound excludes it while noises keep theirs."""


def slots_needed(sparsity: int, progress: float, factor: float) -> int:
    """The smallest integer s with ``s/(ln s + 1) >= factor * sparsity / progress^2``; progress on the unit scale."""
    wanted = factor * sparsity / progress**2

    def enough(s: int) -> bool:
        return s / (math.log(s) + 1) >= wanted

    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
    return least_integer(enough, low, high)


@dataclass
class SlotsState:
    """Which element has which slot, the slots' masses in counts, and what each free slot holds.

    Attributes:
        slot_of: slot numbers of the elements that have one, from 0 in order of assignment.
        masses: of the assigned slots; the array may be longer than they are many.
        free: mass of each free slot.
        slots: their number s, assigned or free.
    """

    slots: int
    free: float
    slot_of: dict[str, int] = field(default_factory=dict)
    masses: FloatArray = field(default_factory=lambda: np.zeros(0))

    def count(self, elements: tuple[str, ...]) -> FloatArray:
        """The count of each element."""
        other = self.free if len(self.slot_of) < self.slots else 0.0
        slots = [self.slot_of.get(element, -1) for element in elements]
        return np.array([self.masses[slot] if slot >= 0 else other for slot in slots])

    def new(self, elements: tuple[str, ...]) -> list[str]:
        """The elements that have no slot yet."""
        return [element for element in elements if element not in self.slot_of]

    def assign(self, elements: tuple[str, ...]) -> list[int]:
        """The slots of elements, given to those that have none.

        Raises:
            OutOfSlots: when there are too few.
        """
        new = self.new(elements)
        if len(self.slot_of) + len(new) > self.slots:
            raise OutOfSlots(f"all {self.slots} slots are taken")
        while len(self.slot_of) + len(new) > len(self.masses):
            self.masses = np.concatenate([self.masses, np.zeros(max(16, len(self.masses)))])
        for element in new:
            self.masses[len(self.slot_of)] = self.free
            self.slot_of[element] = len(self.slot_of)
        return [self.slot_of[element] for element in elements]

    def mass_outside(self, slots: list[int]) -> float:
        """The mass of all other slots, summed: as the difference to the whole it would drown in its rounding."""
        taken = len(self.slot_of)
        others = np.ones(taken, dtype=bool)
        others[slots] = False
        return float(self.masses[:taken][others].sum()) + (self.slots - taken) * self.free


@dataclass(frozen=True)
class SparseWeights(Construction):
    """SMW for queries of at most ``sparsity`` elements, over all strings and mass ``n``.

    With ``step="projection"`` an update is the entropic projection on the half-space that the measurement
    certifies, with ``step="paper"`` the lecture's fixed rate ``alpha/(2n)``. Time and memory of an update grow with
    the slots taken so far, at most m times the number of updates.
    """

    space: Space
    facts: PublicFacts
    step: Step
    progress: float
    sparsity: int

    @property
    def mass(self) -> float:
        """Mass of all slots in counts."""
        assert self.facts.mass is not None, "the mass is public or bought before the first round"
        return max(self.facts.mass, 1.0)

    @property
    def factor(self) -> float:
        """c: the relative entropy falls by ``alpha^2/(c n^2)`` an update."""
        return 4.0 if self.step == "paper" else 2.0

    def nbytes(self, updates: int) -> int:
        """About what the elements of so many updates take."""
        return ELEMENT_BYTES * self.sparsity * updates

    def working_bytes(self, state: SlotsState, query: LinearQuery) -> int:
        """The slots' masses while they grow, and some numbers for each."""
        return ELEMENT_BYTES * (len(state.slot_of) + 2 * self.sparsity) + PARTS_BYTES

    def admit(self, query: LinearQuery) -> None:
        """Refuse a query of more elements than the session was opened for.

        Raises:
            InvalidQuery: naming the number.
        """
        if isinstance(query, CompiledElements) and len(query.elements) > self.sparsity:
            raise InvalidQuery(
                f"elements: this session was opened for queries of at most {self.sparsity} elements that weigh "
                f"something, and {len(query.elements)} do"
            )

    def has_room(self, state: SlotsState, query: LinearQuery) -> bool:
        """Whether there are slots for the query's new elements."""
        if not isinstance(query, CompiledElements):
            return True
        return len(state.slot_of) + len(state.new(query.elements)) <= state.slots

    def start(self) -> SlotsState:
        """The uniform hypothesis: no element has a slot."""
        slots = slots_needed(self.sparsity, self.progress / self.mass, self.factor)
        return SlotsState(slots, self.mass / slots)

    def answer(self, state: SlotsState, query: LinearQuery) -> float:
        """<f, h> in counts."""
        if not isinstance(query, CompiledElements):
            return 0.0
        return float(query.real @ state.count(query.elements))

    def update(self, state: SlotsState, measurement: MeasuredQuery) -> None:
        """Give the query's elements slots, tilt these and normalise all, in place.

        Raises:
            OutOfSlots: when there are too few; nothing has changed then.
        """
        query, n = measurement.query, self.mass
        assert isinstance(query, CompiledElements)
        present = self.answer(state, query)
        weights = query.real
        if self.step == "paper":
            rate: float | None = math.copysign(self.step_size(self.progress), measurement.value - present)
        else:
            rate, (low, high) = None, query.range
            aim = certified(measurement, present)
            least, most = simplex_reach(low, high, n)
            target = min(max(aim, least), most)
            if present in (aim, target):
                return
        slots = state.assign(query.elements)
        masses = state.masses[slots]
        weightless = max(FLOOR * n, state.mass_outside(slots))
        if rate is None:
            guess = (target - present) / n / ((high - low) / 2) ** 2
            rate = solve(tilted_line(weights, masses, weightless), target, guess, scale=n)
        top = max(0.0, float((rate * weights).max()))
        tilted = masses * np.exp(rate * weights - top)
        factor = n / (float(tilted.sum()) + weightless * math.exp(-top))
        state.masses *= factor * math.exp(-top)
        state.masses[slots] = tilted * factor
        np.maximum(state.masses, FLOOR * n, out=state.masses)
        state.free = max(FLOOR * n, state.free * factor * math.exp(-top))

    def dump(self, state: SlotsState) -> Dump:
        """The elements in order of assignment, their masses, and what a free slot holds."""
        taken = len(state.slot_of)
        words = {"slots": str(state.slots), "elements": list(state.slot_of)}
        return Dump({"masses": state.masses[:taken], "free": numbers(state.free)}, words)

    def load(self, dump: Dump) -> SlotsState:
        """The state that :meth:`dump` wrote."""
        slot_of = {element: slot for slot, element in enumerate(dump.words["elements"])}
        free = float(dump.arrays["free"][0])
        return SlotsState(int(dump.words["slots"]), free, slot_of, dump.arrays["masses"])

    def bound(self, progress: float) -> float | None:
        """``c (ln s + 1) / a^2`` with a = alpha/n: 4 for the lecture's step (theorem 4), 2 for the projection."""
        if self.facts.mass is None:
            return None
        a = progress / self.mass
        return self.factor * (math.log(slots_needed(self.sparsity, a, self.factor)) + 1) / a**2

    def step_size(self, progress: float) -> float:
        """``alpha/(2n)``, the rate of the lecture's algorithm 1."""
        return progress / (2 * self.mass)

    def export(self, state: SlotsState) -> ListedHypothesis:
        """The elements that have slots, in order of assignment, and their counts."""
        other = state.free if len(state.slot_of) < state.slots else 0.0
        return ListedHypothesis(tuple(state.slot_of), state.masses[: len(state.slot_of)].copy(), other)
