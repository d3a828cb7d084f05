"""Errors of commands."""

from __future__ import annotations


class Refusal(Exception):
    """A failure that the user can mend, told in a sentence; ``code`` is the command's exit code."""

    code = 1


class Contradiction(Refusal):
    """What was signed contradicts itself: no failure, but a finding."""

    code = 3
