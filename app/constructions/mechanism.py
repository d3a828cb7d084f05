"""A mechanism: which construction a session uses, and how it steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, field_validator, model_validator

from app.constructions.base import BOUNDED_STEPS, BoundedStep, Step
from app.declarations.models import Model, Whole
from app.geometry.norms import Family, Norm, Side, auto_exponent
from app.spaces.space import Space
from app.spaces.workload_request import WorkloadRequest

#: Noise of questions that are measured on their own.
DirectNoise = Literal["laplace", "gaussian"]
#: How a workload that is known in advance is released; ``auto`` is whichever is expected to err least.
Method = Literal[
    "histogram",
    "gaussian",
    "projection",
    "factorization",
    "iterative_construction",
    "synthetic_graph",
    "synthetic_table",
    "publication",
    "auto",
]
PotentialName = Literal["entropy", "lp", "group", "schatten"]

#: Exponents nearer to 1 have duals above 1001, whose powers leave float64.
LEAST_EXPONENT = 1.001


class ReleaseOptions(Model):
    """Options that belong to some methods of a release alone."""

    records: Whole | None = Field(
        default=None,
        ge=1,
        le=10**7,
        description="synthetic_table: how many records are made; else as many as there are",
    )
    rounding: Literal["edges"] | None = Field(
        default=None, description="synthetic_graph: weights of 0 and 1, drawn at random, in place of those between"
    )
    geometry: Literal["cut_norm", "spectral"] | None = Field(
        default=None, description="synthetic_graph: in which distance it is near to what was measured"
    )
    rounds: Whole | None = Field(default=None, ge=1, le=10**4, description="iterative_construction: how many at most")
    within: float | None = Field(
        default=None,
        gt=0,
        le=1e15,
        allow_inf_nan=False,
        strict=True,
        description="publication: how far, in counts, an interval may reach; the result says what is missing for that",
    )
    construction: Literal["mw", "fk"] | None = Field(
        default=None, description="iterative_construction: what keeps its hypothesis"
    )


class Mechanism(Model):
    """How the questions of a session are answered; each kind is a model with the fields that belong to it."""

    construction: str

    @property
    def from_evidence(self) -> bool:
        """Whether questions are answered from everything that was measured."""
        return False


class DirectMechanism(Mechanism):
    """Each question is measured on its own, with noise of this law."""

    construction: DirectNoise


class FromEvidenceMechanism(Mechanism):
    """Questions are answered from everything that was measured.

    A ``histogram`` measures the whole table at the opening; ``auto`` is whatever serves best.
    """

    construction: Literal["evidence", "histogram", "auto"]

    @property
    def from_evidence(self) -> bool:
        return self.construction != "auto"


class WorkloadMechanism(Mechanism):
    """A release: all questions are known in advance."""

    construction: Literal["workload"]
    method: Method = Field(description="how it is released")
    workload: WorkloadRequest = Field(description="what is asked")
    options: ReleaseOptions = Field(description="what belongs to some methods alone")
    rows: dict[str, Any] | None = Field(
        default=None, description="the rows that were found best for it; empty where cells are measured"
    )

    @property
    def from_evidence(self) -> bool:
        return True


class Iterative(Mechanism):
    """A construction keeps a hypothesis, and learns from hits. Here that is a mass spread over cells or elements."""

    step: Step = "projection"

    @property
    def entropic(self) -> bool:
        """Whether the hypothesis is a mass spread over cells or elements."""
        return True

    @property
    def unbounded(self) -> str | None:
        """Why no number of updates can be promised, whatever is known of the data; None where one can."""
        return None if self.step in BOUNDED_STEPS else f"step {self.step} has no bound on the number of updates"

    def norm(self, space: Space) -> Norm | None:
        """The norm of the potential on this space; None where there is none, as for the entropy."""
        return None

    def ball(self, space: Space) -> Norm | None:
        """The norm that bounds the hypothesis; None where none does."""
        return None

    def fact(self, space: Space) -> str | None:
        """The name of the fact about the data that a session cannot start without, or None."""
        return "mass"


class MwMechanism(Iterative):
    """Multiplicative weights."""

    construction: Literal["mw"]


class FkMechanism(Iterative):
    """Frieze/Kannan: a sum of cut matrices."""

    construction: Literal["fk"]

    @property
    def entropic(self) -> bool:
        return False

    def fact(self, space: Space) -> str | None:
        return None


class MdMechanism(Iterative):
    """Mirror descent in the geometry of a potential."""

    construction: Literal["md"]
    potential: PotentialName = Field(description="the geometry it steps in")
    p: float | Literal["auto"] | None = Field(
        default=None, description="exponent of the potential's norm, in (1, 2]; auto (the default) is near 1"
    )
    axis: Side | None = Field(default=None, description="with potential group: whose Euclidean norms are taken")
    ball_p: float | Literal["auto", "none"] | None = Field(
        default=None, description="exponent of the norm, bought where it is not public, that bounds the hypothesis"
    )
    zeta: float | None = Field(
        default=None, gt=0, description="promised bound on the queries' dual norm; larger queries are refused"
    )

    @field_validator("p", "ball_p", "zeta", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool) or (isinstance(value, str) and value not in ("auto", "none")):
            raise ValueError("must be a number")
        return value

    @field_validator("p")
    @classmethod
    def _p(cls, value: float | str | None) -> float | str | None:
        if isinstance(value, float) and not LEAST_EXPONENT <= value <= 2:
            raise ValueError(f"must lie from {LEAST_EXPONENT} to 2, or be auto")
        return value

    @field_validator("ball_p")
    @classmethod
    def _ball_p(cls, value: float | str | None) -> float | str | None:
        if isinstance(value, float) and not 1 <= value <= 2:
            raise ValueError("must lie from 1 to 2, or be auto (as p) or none")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.entropic and (self.p is not None or self.ball_p is not None):
            raise ValueError("the entropy has no p and no ball_p: its hypothesis has the data's mass")
        if (self.potential == "group") != (self.axis is not None):
            raise ValueError("axis (rows or columns) goes with potential group, and group needs it")
        return self

    @property
    def entropic(self) -> bool:
        return self.potential == "entropy"

    def norm(self, space: Space) -> Norm | None:
        if self.potential == "entropy":
            return None
        family: Family = self.potential
        if isinstance(self.p, float):
            return Norm(family, self.p, self.axis)
        counts = {
            "lp": space.size,
            "group": space.shape[0 if self.axis == "rows" else -1],
            "schatten": min(space.shape, default=1),
        }
        return Norm(family, auto_exponent(counts[family]), self.axis)

    def ball(self, space: Space) -> Norm | None:
        """The norm of exponent ``ball_p``, by default the potential's own."""
        norm = self.norm(space)
        if norm is None or self.ball_p == "none":
            return None
        return Norm(norm.family, self.ball_p, norm.side) if isinstance(self.ball_p, float) else norm

    def fact(self, space: Space) -> str | None:
        """The name of the fact about the data that a session cannot start without, or None.

        A ball is bought when it is asked for (``ball_p``), and with JT12's own steps, which end on it. The
        half-space projection needs none: without ``ball_p`` nothing is bought for it.
        """
        if self.entropic:
            return "mass"
        ball = self.ball(space)
        if ball is None or (self.ball_p is None and self.step != "paper"):
            return None
        return ball.name


class SmwMechanism(Iterative):
    """Sparse multiplicative weights over the elements of a multiset."""

    construction: Literal["smw"]
    step: BoundedStep = "projection"
    sparsity: Whole = Field(ge=1, le=1_000_000, description="the most elements that a query may weigh")


class MedianMechanism(Iterative):
    """The median mechanism."""

    construction: Literal["median"]
    step: BoundedStep = "projection"
    sampled: bool | None = Field(
        default=None,
        strict=True,
        description="a sample of the data sets that the answers allow, with no bound on updates, for universes too "
        "large to keep the set of all of them",
    )
    weights: Literal["nonnegative", "signed"] | None = Field(
        default=None, description="signed (the default), or the promise of queries without negative weights"
    )

    @property
    def unbounded(self) -> str | None:
        return "a sample of the median mechanism has no bound on the number of updates" if self.sampled else None


#: A mechanism by what its ``construction`` names.
AnyMechanism = Annotated[
    MwMechanism
    | FkMechanism
    | MdMechanism
    | SmwMechanism
    | MedianMechanism
    | DirectMechanism
    | FromEvidenceMechanism
    | WorkloadMechanism,
    Field(discriminator="construction"),
]
_ADAPTER: TypeAdapter[AnyMechanism] = TypeAdapter(AnyMechanism)


def parse_mechanism(words: Mapping[str, Any]) -> AnyMechanism:
    """The mechanism that parsed JSON states.

    Raises:
        pydantic.ValidationError: when it states none.
    """
    return _ADAPTER.validate_python(words)


def iterative(mechanism: Mechanism) -> Iterative:
    """A mechanism that is known to keep a hypothesis.

    Raises:
        TypeError: when it keeps none.
    """
    if not isinstance(mechanism, Iterative):
        raise TypeError(f"{mechanism.construction} keeps no hypothesis")
    return mechanism
