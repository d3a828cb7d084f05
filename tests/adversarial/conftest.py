"""Services as the integration suites have them, to be attacked."""

from tests.integration.conftest import database, migrated, world, worlds

__all__ = ["database", "migrated", "world", "worlds"]
