"""Parts of long lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """Items of a list in its order; ``after`` names what the next page follows on, None where this is the last."""

    items: list[dict[str, Any]]
    after: str | None
