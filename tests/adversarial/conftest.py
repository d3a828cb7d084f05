"""Services as the integration suites have them, to be attacked."""

from tests.integration.conftest import database, world, worlds

__all__ = ["database", "world", "worlds"]
