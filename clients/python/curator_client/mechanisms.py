"""How a session answers. A word, where there is nothing more to say, or one of these, of which every option is named.

``"auto"`` leaves the choice to the service; ``"evidence"`` answers from all that was measured and buys what is
missing; ``"histogram"`` measures everything at once; ``"gaussian"`` and ``"laplace"`` measure each question by itself.
The others test each question against a public hypothesis, and pay only where that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Literal

Simple = Literal["auto", "evidence", "histogram", "gaussian", "laplace"]
#: How a hypothesis moves at an update.
Step = Literal["projection", "paper", "full", "refit"]


@dataclass(frozen=True)
class _Hypothesis:
    """A mechanism that keeps a hypothesis; what is None is left to the service."""

    construction: ClassVar[str]

    def json(self) -> dict[str, Any]:
        """As the contract has it."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"construction": self.construction} | {name: value for name, value in said.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class MW(_Hypothesis):
    """Multiplicative weights."""

    construction = "mw"
    step: Step | None = None


@dataclass(frozen=True, kw_only=True)
class FK(_Hypothesis):
    """Frieze and Kannan's decomposition: sums of cuts."""

    construction = "fk"
    step: Step | None = None


@dataclass(frozen=True)
class MD(_Hypothesis):
    """Mirror descent with a potential."""

    construction = "md"
    potential: Literal["entropy", "lp", "group", "schatten"]
    _: KW_ONLY
    p: float | Literal["auto"] | None = None
    axis: Literal["rows", "columns"] | None = None
    ball_p: float | Literal["auto", "none"] | None = None
    zeta: float | None = None
    step: Step | None = None


@dataclass(frozen=True)
class SMW(_Hypothesis):
    """Multiplicative weights for data of few elements, at most ``sparsity``."""

    construction = "smw"
    sparsity: int
    _: KW_ONLY
    step: Step | None = None


@dataclass(frozen=True, kw_only=True)
class Median(_Hypothesis):
    """The median of all data sets that are still possible."""

    construction = "median"
    sampled: bool | None = None
    weights: Literal["nonnegative", "signed"] | None = None


#: A mapping is a mechanism in the contract's own words.
Mechanism = Simple | MW | FK | MD | SMW | Median | Mapping[str, Any]


def spelled(mechanism: Mechanism) -> dict[str, Any]:
    """A mechanism as the contract has it."""
    if isinstance(mechanism, str):
        return {"construction": mechanism}
    return mechanism.json() if isinstance(mechanism, _Hypothesis) else dict(mechanism)
