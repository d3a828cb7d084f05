"""Failures that are no findings: the audit's own, and documents that do not have the form that they should have."""

from __future__ import annotations

from contextlib import AbstractContextManager

from numpy.linalg import LinAlgError

from app.declarations.errors import CuratorError
from app.privacy.errors import PrivacyError

#: What taking apart JSON that has another form than it should raises.
_MALFORMED = (
    CuratorError,
    PrivacyError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)


class Undecided(Exception):
    """The audit itself failed, of an error that none of its rules foresees: there is no verdict. The record may be
    honest, and may be made for this.

    ``sequence`` is the number of the entry that was looked at, None where it was none.
    """

    def __init__(self, error: BaseException, sequence: int | None = None) -> None:
        where = "" if sequence is None else f" at entry {sequence}"
        super().__init__(
            f"no verdict: the replay itself failed{where} ({type(error).__name__}). This is a fault of the program, or "
            "of this machine, and says nothing of the record, for or against it"
        )
        self.sequence = sequence


class Malformed(Exception):
    """A stranger's document does not have the form that it should have."""


class taking_apart(AbstractContextManager[None, None]):  # noqa: N801 - it is used as a function is
    """Around what takes a stranger's document apart, and computes nothing: there, and nowhere else, an error of a type
    or a key is the document's.

    Args:
        stated: what the code within says that it raises of a document, where it does: any other error is its own.

    Raises:
        Malformed: in the place of such errors.
    """

    def __init__(self, *stated: type[Exception]) -> None:
        self._kinds = stated or _MALFORMED

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # LinAlgError is a ValueError, and of no document.
        if isinstance(error, self._kinds) and not isinstance(error, LinAlgError):
            raise Malformed(str(error)) from error
