"""The refusals of methods."""

from __future__ import annotations


class UnfitWorkload(Exception):
    """A method cannot measure this workload. The message says what to change; it depends on what was asked alone."""
