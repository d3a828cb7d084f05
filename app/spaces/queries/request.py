"""Query requests: queries as an analyst writes them.

Here is what the words of several kinds have in common; those of a kind stand with it, and say what they compile to: the
exact query, once, on a space. Weights are finite; whether they fit the space is the compiler's question.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
)
from pydantic import model_validator as _model_validator

from app.declarations.conditions import Value
from app.declarations.explaining import explain
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query
from app.spaces.space import Space

Weight = Annotated[float, Field(strict=True)]
Node = StrictInt | StrictStr
#: Of intervals: below it they would be too narrow to be told from nothing.
LEAST_CONFIDENCE = 1e-9
#: In a list only the first wrong item is described: a problem takes a hundred times the memory of its item.
Nodes = Annotated[list[Node], Field(fail_fast=True)]
Weights = Annotated[list[Weight], Field(fail_fast=True)]
#: Groups of nodes by what they are called.
Groups = Annotated[dict[StrictStr, Literal["all"] | Nodes], Field(min_length=1)]
#: Values of an attribute by what they are called together. A name stands in every row of an answer, and so is short.
Merged = Annotated[
    dict[
        Annotated[StrictStr, Field(min_length=1, max_length=128)],
        Annotated[list[Value | None], Field(fail_fast=True, min_length=1)],
    ],
    Field(min_length=1),
]
#: By attribute the edges of coarser bins, or the values that are counted as one.
Bins = dict[
    str,
    Annotated[
        Annotated[list[Value], Field(fail_fast=True, min_length=2), Tag("edges")] | Annotated[Merged, Tag("groups")],
        Discriminator(lambda given: "groups" if isinstance(given, dict) else "edges"),
    ],
]


class QueryModel(BaseModel):
    """The wanted accuracy of an answer, whatever is asked. It is no part of the question."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    unverified: StrictBool = Field(
        default=False, description="answer from the hypothesis, free of charge and without an error bound"
    )
    within: Weight | None = Field(
        default=None, gt=0, description="largest half-width of the answer's interval, in counts"
    )
    confidence: Weight | None = Field(
        default=None,
        ge=LEAST_CONFIDENCE,
        lt=1,
        description="of the answer's interval; the session's where it is left out",
    )
    at_most: Weight | None = Field(
        default=None,
        ge=0,
        description="the most that the answer may charge of epsilon; what may cost more is refused, and costs nothing",
    )
    adaptive: StrictBool = Field(
        default=False,
        description="whether the question was chosen by what was released before, which takes a wider interval",
    )

    @_model_validator(mode="after")
    def _has_an_interval(self) -> Self:
        if self.unverified and self.within is not None:
            raise ValueError("an unverified answer has no interval: leave within out")
        return self


#: The fields that are no part of a question.
WANTED = frozenset(QueryModel.model_fields)


class Request(QueryModel):
    """A query of some kind, and what is wanted of its answer.

    Attributes:
        tabled: whether the answer is a table, whatever else is said.
    """

    tabled: ClassVar[bool] = False

    @abstractmethod
    def compiled(self, space: Space) -> Query:
        """Compile the request to exact weights on a space.

        Raises:
            InvalidQuery: when it does not fit the space.
        """

    @classmethod
    def name(cls) -> str:
        """The name of the kind."""
        (name,) = get_args(cls.model_fields["type"].annotation)
        return str(name)

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        """The query of a canonical form of this type; None where the space has none of such a form of their own.

        Sums with weights have theirs in common (:func:`app.spaces.queries.canonical.read`).

        Raises:
            InvalidQuery: when it is no such form, or its numbers are out of range.
        """
        return None

    def looked_at(self, space: Space) -> int:
        """The most values that compiling it and counting what it asks write out, beside those that it lists."""
        return sum(space.shape)


def does_not_fit(kind: str, space: Space) -> InvalidQuery:
    """The refusal of a kind of query that data sets of the space's kind do not have."""
    if space.kind == "multiset":
        return InvalidQuery(f"a {kind} query does not fit a multiset: name elements with their weights")
    return InvalidQuery(f"a {kind} query does not fit a {space.kind} data set")


def parse_wanted(given: Mapping[str, Any]) -> QueryModel:
    """The wanted accuracy of a query that says nothing of it.

    Raises:
        InvalidQuery: when a field is unknown or not of its kind.
    """
    try:
        return QueryModel.model_validate(given)
    except ValidationError as error:
        raise InvalidQuery(explain(error, QueryModel, given)) from None
