"""Errors of commands."""

from __future__ import annotations


class Refusal(Exception):
    """A failure that the user can mend, told in a sentence."""
