"""Attributes computed at first use, without a lock."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    lazy = cached_property
else:

    class lazy(cached_property):  # noqa: N801 - used as a decorator
        """``functools.cached_property`` as Python 3.12 and later have it.

        3.11 takes a lock at every first access, which on the answering path costs more than most values do. Two threads
        may compute a value twice; what is computed here is the same both times.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """The value, kept in the instance from here on."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


def kept_of(instance: Any, *names: str) -> list[Any]:
    """Those of some such attributes of an instance that were computed."""
    return [instance.__dict__[name] for name in names if name in instance.__dict__]
