"""Findings: errors that say where something does not follow; and the audit's own failures, which are no findings."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

from numpy.linalg import LinAlgError

from app.declarations.errors import CuratorError
from app.privacy.errors import PrivacyError

#: What rules of a log are about, as a report groups them.
Check = Literal["records", "chains", "books", "charges"]
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


class Unfollowed(Exception):
    """Something does not follow: what, and where: its data set, session, movement and entry, as far as it is of one.
    ``check`` is what the rule that does not hold is about.
    """

    def __init__(
        self,
        problem: str,
        *,
        check: Check = "records",
        dataset: str | None = None,
        session: str | None = None,
        movement: int | None = None,
        entry: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.check = problem, check
        self.dataset, self.session, self.movement, self.entry = dataset, session, movement, entry


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
