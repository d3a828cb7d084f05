"""The refusals of spaces."""

from app.declarations.errors import CuratorError


class InvalidQuery(CuratorError):
    """A query does not fit the space it is asked of."""

    code = "invalid-query"


class NotOffered(InvalidQuery):
    """Private data do not tell such numbers, whatever they are."""
