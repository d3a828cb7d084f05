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


@contextmanager
def operating() -> Iterator[None]:
    """Turn what keeps a command from working into a refusal, which repeats no value of a setting.

    Raises:
        Refusal: when the settings, the data folder or the database do not allow the command.
    """
    from pydantic import ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    from app.bootstrap.preconditions import StartRefused
    from app.declarations.explaining import problems
    from app.settings import PREFIX, Settings

    try:
        yield
    except StartRefused as refused:
        raise Refusal(str(refused)) from None
    except ValidationError as invalid:
        found = (
            problem.partition(":") for problem in problems(invalid, Settings, dict.fromkeys(Settings.model_fields))
        )
        raise Refusal("; ".join(f"{PREFIX}{name.upper()}:{words}" for name, _, words in found)) from None
    except SQLAlchemyError as failed:
        # The driver's own message names server and database, never the password; the statement is left out.
        raise Refusal(f"the database: {getattr(failed, 'orig', None) or failed}") from None
