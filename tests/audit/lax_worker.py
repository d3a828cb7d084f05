"""The process that checks logs, with a bug that its environment names: for a test that must see it."""

from __future__ import annotations

import os

from app.audit.transcripts import Transcripts
from app.bootstrap import audit_worker


def _tell_nothing(_self: Transcripts, _broken: object) -> None:
    """A finding that goes nowhere."""


def main() -> None:
    if os.environ["PLANTED"] == "no finding":
        Transcripts._tell = _tell_nothing  # type: ignore[method-assign, assignment]
    else:
        Transcripts._check = lambda *_: None  # type: ignore[method-assign, assignment]
    audit_worker.main()


if __name__ == "__main__":
    main()
