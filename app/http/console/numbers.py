"""Numbers as people type them."""

from __future__ import annotations

import math
import re

_DIGITS = r"(?:[0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)"
_NUMBER = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{{1,3}})?", re.IGNORECASE)


def number_of(text: str) -> float | int | None:
    """A number, with commas between thousands or without; None of what is none or not finite.

    A comma elsewhere is refused, since many write their decimals behind it: 0,5 is not 5.
    """
    text = text.strip().replace("−", "-")
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text.replace(",", ""))
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def positive(text: str) -> float | int | None:
    """A number above 0; None of anything else."""
    number = number_of(text)
    return number if number is not None and number > 0 else None
