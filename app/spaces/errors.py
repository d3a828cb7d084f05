"""The refusals of spaces."""

from app.declarations.errors import CuratorError


class InvalidQuery(CuratorError):
    """A query does not fit the space it is asked of."""

    code = "invalid-query"
