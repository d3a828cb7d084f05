"""Workloads as they are asked for: many questions that are all known before anything is measured."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from app.declarations.models import Model, Whole

#: Queries that a workload names one by one, at most.
MOST_NAMED = 4096
_KINDS = ("queries", "recorded", "marginals", "ranges", "cuts", "rank_one")


class WorkloadRequest(Model):
    """One of: queries in a list, as they are asked or as they were recorded, all marginals of so many attributes, all
    ranges of an attribute, all cuts or all rank-one queries of a graph or matrix.
    """

    queries: list[dict[str, Any]] | None = Field(
        default=None, min_length=1, max_length=MOST_NAMED, description="queries as sessions take them"
    )
    recorded: list[dict[str, Any]] | None = Field(
        default=None, min_length=1, max_length=MOST_NAMED, description="queries as transcripts have them"
    )
    marginals: Whole | None = Field(
        default=None, ge=1, le=16, description="all marginals of so many attributes of a table"
    )
    attributes: list[str] | None = Field(
        default=None, min_length=1, max_length=256, description="marginals: of these attributes, not of all"
    )
    ranges: str | None = Field(default=None, description="all ranges of neighbouring values of this attribute")
    cuts: Literal["all"] | None = None
    rank_one: Literal["all"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            raise ValueError(f"give one of {', '.join(_KINDS)}")
        if self.attributes is not None:
            if self.marginals is None:
                raise ValueError("attributes go with marginals")
            if len(set(self.attributes)) != len(self.attributes):
                raise ValueError("an attribute is named twice")
        return self

    @property
    def whole(self) -> bool:
        """Whether it asks for all of a graph or a matrix."""
        return self.cuts is not None or self.rank_one is not None

    @property
    def kind(self) -> str:
        """Which of them it is."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)
