"""Names in refusals: which of those that there are was meant, and what they are."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from itertools import islice

#: Refusals name so many of the names that there are, so much of each, and look for a near one among so many.
MOST_LISTED, MOST_SHOWN, _MOST_COMPARED = 20, 64, 1000


def cut(text: str) -> str:
    """A text as a sentence shows it: whole up to a length."""
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."


def listed(names: Iterable[str], count: int) -> str:
    """Of so many names as a sentence has them: all of them up to a number, and how many more there are."""
    told = ", ".join(map(cut, islice(names, MOST_LISTED)))
    return f"{told} and {count - MOST_LISTED:,} more" if count > MOST_LISTED else told


def meant(given: str, names: Iterable[str]) -> str:
    """The question after a name that is near to the one given, to stand behind a refusal; empty where none is near."""
    near = difflib.get_close_matches(given[:MOST_SHOWN], list(islice(names, _MOST_COMPARED)), n=1)
    return f": did you mean {cut(near[0])!r}?" if near else ""


def unknown(what: str, given: str, names: Collection[str], there_are: str) -> str:
    """The refusal of a name that there is not: which one may have been meant, and those that there are.

    Args:
        what: what is named, such as ``attribute``.
        given: the name that there is not.
        names: those that there are.
        there_are: what stands before them, such as ``the attributes are``.
    """
    near = meant(given, names)
    return f"unknown {what} {cut(given)!r}{near or ':'} {there_are} {listed(names, len(names))}"
