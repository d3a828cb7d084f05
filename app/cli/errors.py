"""Errors of commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refusal(Exception):
    """A failure that the user can mend, told in a sentence; ``code`` is the command's exit code."""

    code = 1


class Contradiction(Refusal):
    """Signed statements contradict each other: no failure, but a finding."""

    code = 3


@contextmanager
def judging(what: str) -> Iterator[None]:
    """Tell what contradicts itself, after some words, from what could not be verified."""
    from curator_client.errors import Contradicted, NotVerified

    try:
        yield
    except Contradicted as error:
        raise Contradiction(f"{what}{error}") from None
    except NotVerified as error:
        raise Refusal(str(error)) from None
