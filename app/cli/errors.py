"""What a command that cannot be carried out says."""

from __future__ import annotations


class Refusal(Exception):
    """Something the person at the keyboard can mend, told in a sentence."""
