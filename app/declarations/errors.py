"""The root of every error that a caller can mend, and the ones that declarations raise.

An error knows what went wrong and what to change, never a status code: that is the transport's business.
No message may carry a private value.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CuratorError(Exception):
    """A refusal that the caller can act on.

    ``code`` is the stable name of the problem, ``detail`` says in a sentence what to change, ``extra`` holds
    further public facts about it (for a budget: what was asked for and what is left).
    """

    code: ClassVar[str] = "invalid-request"

    def __init__(self, detail: str, **extra: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        # Other classes are made from other arguments: between processes what they hold travels, and not how they came.
        return _remade, (type(self), self.detail, self.__dict__)


def _remade(kind: type[CuratorError], detail: str, holds: dict[str, Any]) -> CuratorError:
    error = kind.__new__(kind, detail)
    error.__dict__.update(holds)
    return error


class InvalidRequest(CuratorError):
    """The request as a whole cannot be read or contradicts itself."""

    code = "invalid-request"


class InvalidDataset(CuratorError):
    """A declaration of a data set, or the file uploaded for it, breaks its own rules."""

    code = "invalid-dataset"
