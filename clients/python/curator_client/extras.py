"""What the package needs only for some calls, imported by these."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from curator_client.errors import MissingExtra


def extra(name: str, module: str) -> Any:
    """A module that an extra of this distribution brings.

    Raises:
        MissingExtra: when it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(name) from error


def server(module: str) -> Any:
    """A module of the service's pure folders, which replay what it recorded: the extra ``replay``.

    Imported as late as it is called: it loads all that computes plans and hypotheses, which most callers do not need.

    Raises:
        MissingExtra: when it is not installed.
    """
    return extra("replay", f"app.{module}")
