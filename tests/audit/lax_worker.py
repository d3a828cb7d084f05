"""The process that checks logs, with a bug that its environment names: for a test that must see it."""

from __future__ import annotations

import os

from app.audit.against_log import NUMBERS, Due, Found
from app.audit.transcripts import Transcripts
from app.bootstrap import audit_worker


def _tell_nothing(_self: Transcripts, _broken: object) -> None:
    """A finding that goes nowhere."""


def _find_nothing(*_: object) -> Found:
    """A replay that looks at nothing."""
    return Found({**dict.fromkeys(NUMBERS, 0), "status": "open", "head_hash": ""}, 0, 0, False, frozenset())


def main() -> None:
    if os.environ["PLANTED"] == "no finding":
        Transcripts._tell = _tell_nothing  # type: ignore[method-assign, assignment]
    else:
        Due.replayed = _find_nothing  # type: ignore[method-assign, assignment]
    audit_worker.main()


if __name__ == "__main__":
    main()
