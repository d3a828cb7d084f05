"""A mechanism: which construction a session uses, and how it steps."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from app.constructions.base import BOUNDED_STEPS, Step
from app.declarations.models import Model, Whole
from app.geometry.norms import Family, Norm, Side, auto_exponent
from app.spaces.space import Space
from app.spaces.workload_request import WorkloadRequest

Construction = Literal["mw", "fk", "md", "smw", "median"]
#: Mechanisms without a construction: each question is measured on its own, with this noise.
DirectNoise = Literal["laplace", "gaussian"]
#: Those that answer a table's questions from everything that was measured of it: ``histogram`` measures the whole table
#: at the opening, ``auto`` is whatever serves best, and ``workload`` is a release.
FromEvidence = Literal["evidence", "histogram", "auto", "workload"]
#: How a workload that is known in advance is released; ``auto`` is whichever is expected to err least.
Method = Literal[
    "histogram",
    "gaussian",
    "projection",
    "factorization",
    "iterative_construction",
    "synthetic_graph",
    "synthetic_table",
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
    construction: Literal["mw", "fk"] | None = Field(
        default=None, description="iterative_construction: what keeps its hypothesis"
    )


class Mechanism(Model):
    """The construction of a session with its parameters."""

    #: The fields that belong to one construction only, and those of them that it cannot do without.
    own: ClassVar[dict[str, tuple[str, ...]]] = {
        "md": ("potential", "p", "axis", "ball_p", "zeta"),
        "smw": ("sparsity",),
        "median": ("sampled", "weights"),
        "workload": ("method", "workload", "options", "rows"),
    }
    needed: ClassVar[dict[str, tuple[str, ...]]] = {
        "md": ("potential",),
        "smw": ("sparsity",),
        "workload": ("method", "workload", "options"),
    }

    construction: Construction | DirectNoise | FromEvidence
    step: Step = "projection"
    potential: PotentialName | None = Field(default=None, description="md: the geometry it steps in")
    p: float | Literal["auto"] | None = Field(
        default=None, description="md: exponent of the potential's norm, in (1, 2]; auto (the default) is near 1"
    )
    axis: Side | None = Field(default=None, description="md with potential group: whose Euclidean norms are taken")
    ball_p: float | Literal["auto", "none"] | None = Field(
        default=None,
        description="md: exponent of the norm, bought where it is not public, that bounds the hypothesis",
    )
    zeta: float | None = Field(
        default=None, gt=0, description="md: promised bound on the queries' dual norm; larger queries are refused"
    )

    sparsity: Whole | None = Field(
        default=None, ge=1, le=1_000_000, description="smw: the most elements that a query may weigh"
    )
    sampled: bool | None = Field(
        default=None,
        strict=True,
        description="median: a sample of the data sets that the answers allow, with no bound on updates, for "
        "universes too large to keep the set of all of them",
    )
    weights: Literal["nonnegative", "signed"] | None = Field(
        default=None, description="median: signed (the default), or the promise of queries without negative weights"
    )
    method: Method | None = Field(default=None, description="workload: how it is released")
    workload: WorkloadRequest | None = Field(default=None, description="workload: what is asked")
    options: ReleaseOptions | None = Field(default=None, description="workload: what belongs to some methods alone")
    rows: dict[str, Any] | None = Field(
        default=None, description="workload: the rows that were found best for it; empty where cells are measured"
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
        for construction, fields in self.own.items():
            for name in fields:
                if getattr(self, name) is not None and self.construction != construction:
                    raise ValueError(f"{name} belongs to {construction}")
        for construction, fields in self.needed.items():
            for name in fields:
                if getattr(self, name) is None and self.construction == construction:
                    raise ValueError(f"{construction} needs {name}")
        if self.potential == "entropy" and (self.p is not None or self.ball_p is not None):
            raise ValueError("the entropy has no p and no ball_p: its hypothesis has the data's mass")
        if self.construction in ("smw", "median") and self.step not in BOUNDED_STEPS:
            raise ValueError(f"step {self.step} belongs to mw, fk and md")
        if (self.potential == "group") != (self.axis is not None):
            raise ValueError("axis (rows or columns) goes with potential group, and group needs it")
        return self

    @model_validator(mode="after")
    def _steps(self) -> Self:
        if not self._constructs and "step" in self.model_fields_set:
            raise ValueError(f"step belongs to constructions: {self.construction} keeps no hypothesis")
        return self

    @model_serializer(mode="wrap")
    def _without_steps(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if not self._constructs:
            del document["step"]
        return document

    @property
    def _constructs(self) -> bool:
        """Whether a construction keeps a hypothesis."""
        return self.direct is None and self.construction not in get_args(FromEvidence)

    @property
    def from_evidence(self) -> bool:
        """Whether questions are answered from everything that was measured."""
        return self.construction in ("evidence", "histogram", "workload")

    @property
    def direct(self) -> DirectNoise | None:
        """The noise with which each question is measured on its own; None where a construction keeps a hypothesis."""
        return self.construction if self.construction in ("laplace", "gaussian") else None

    @property
    def entropic(self) -> bool:
        """Whether the hypothesis is a mass spread over cells or elements."""
        return self.construction in ("mw", "smw", "median") or self.potential == "entropy"

    @property
    def unbounded(self) -> str | None:
        """Why no number of updates can be promised, whatever is known of the data; None where one can."""
        if self.step not in BOUNDED_STEPS:
            return f"step {self.step} has no bound on the number of updates"
        return "a sample of the median mechanism has no bound on the number of updates" if self.sampled else None

    def norm(self, space: Space) -> Norm | None:
        """The norm of md's potential on this space; None for the entropy and other constructions."""
        if self.potential in (None, "entropy"):
            return None
        family: Family = self.potential  # type: ignore[assignment]
        if isinstance(self.p, float):
            return Norm(family, self.p, self.axis)
        counts = {
            "lp": space.size,
            "group": space.shape[0 if self.axis == "rows" else -1],
            "schatten": min(space.shape, default=1),
        }
        return Norm(family, auto_exponent(counts[family]), self.axis)

    def ball(self, space: Space) -> Norm | None:
        """The norm that bounds the hypothesis of md: of exponent ``ball_p``, by default the potential's own."""
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
