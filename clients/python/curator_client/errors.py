"""Errors of the client. What the service refuses has a class a reason, and each text says what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from curator_client.answers import Answer, Table


class CuratorError(Exception):
    """The root of all errors that this package raises of the service and of what it sends.

    Attributes:
        results: what came of the questions before it, of many that were asked together.
    """

    results: Sequence[Answer | Table | Refused] = ()


class NoValue(ValueError):
    """A number that JSON has no word for: it is not finite, or beyond 1e308."""


class Refused(CuratorError):
    """The service says no (RFC 9457); :func:`refusal` makes the class that belongs to the reason.

    Attributes:
        type: the stable name of the problem without its path, such as ``budget-exhausted``.
        title: what is wrong, in general.
        status: of HTTP.
        detail: what is wrong here, for people.
        retry_after: after so many seconds the same call may succeed; None where waiting does not help.
        extra: every further member of the problem, such as ``requested`` and ``remaining``.
    """

    #: What whoever is refused does next, where the service's own words leave that open.
    advice: ClassVar[str] = ""

    type: str
    title: str
    status: int
    detail: str
    extra: Mapping[str, Any]
    retry_after: float | None

    def __init__(
        self, type: str, title: str, status: int, detail: str = "", extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(type, title, status, detail, extra)
        self.type = type
        self.title = title
        self.status = status
        self.detail = detail
        self.extra = dict(extra or {})
        self.retry_after = _number(self.extra.get("retry_after"))

    def __str__(self) -> str:
        told = f"{self.title}: {self.detail}" if self.detail else self.title
        return f"{told.rstrip('.')}. {self.advice}" if self.advice else told


class BadKey(Refused):
    """The key is none that the service knows, or none was sent."""

    advice = "Give the key that the admin told you, as Curator(key=...) or in CURATOR_API_KEY."


class Forbidden(Refused):
    """The key's owner may not do this."""

    advice = "Ask an admin for the role, or for a grant on the data set."


class NotFound(Refused):
    """There is nothing of that name, or nothing that this key may see."""

    advice = "Look at what there is: Curator.datasets() and Curator.sessions()."


class Conflict(Refused):
    """It contradicts what is there: a name in use, an idempotency key that was used for something else."""


class InvalidRequest(Refused):
    """The request cannot be read."""


class InvalidQuestion(Refused):
    """The question does not fit the data set."""


class InvalidDataset(Refused):
    """The declaration, or the file, breaks its own rules."""


class BudgetExhausted(Refused):
    """The budget, or the grant, does not hold so much."""

    advice = "Ask for less epsilon, or close sessions that you no longer need: what they did not spend comes back."

    @property
    def requested(self) -> float:
        """The epsilon that was asked for; NaN where the service does not say."""
        return _told(self.extra, "requested")

    @property
    def remaining(self) -> float:
        """The epsilon that is left; NaN where the service does not say."""
        return _told(self.extra, "remaining")


class QuestionsExhausted(Refused):
    """The session has answered as much as its plan allows. What it was told before can still be asked."""

    advice = "Open another session, with a larger max_queries."


class SessionClosed(Refused):
    """A closed session answers nothing."""

    advice = "Open another one: what follows from what was measured before is free in it."


class TooExact(Refused):
    """What is wanted of the answer cannot be had, or costs more than ``at_most``; nothing was drawn.

    ``needed`` is the epsilon that it would take and ``left`` what there is for it; None where the service does not say.
    """

    @property
    def needed(self) -> float | None:
        """The epsilon that it would take."""
        return _number(self.extra.get("needed", self.extra.get("requested")))

    @property
    def left(self) -> float | None:
        """The epsilon that there is for it."""
        return _number(self.extra.get("left", self.extra.get("remaining")))


class SqlRefused(Refused):
    """A statement, or a part of it, has no meaning here. ``str`` shows the place where ``statement`` is known.

    Attributes:
        statement: what was sent; None where whoever made this did not say.
    """

    statement: str | None = None

    @property
    def line(self) -> int:
        """The line of what is refused, from 1."""
        return _whole(self.extra, "line")

    @property
    def column(self) -> int:
        """Where it begins in this line, from 1."""
        return _whole(self.extra, "column")

    @property
    def length(self) -> int:
        """Of how many characters it is."""
        return _whole(self.extra, "length")

    @property
    def near(self) -> str:
        """What is refused."""
        return str(self.extra.get("near", ""))

    @property
    def hint(self) -> str | None:
        """What to write in its place; None where there is nothing to say."""
        hint = self.extra.get("hint")
        return None if hint is None else str(hint)

    def __str__(self) -> str:
        told = self.detail or self.title
        lines = [] if self.statement is None else self.statement.split("\n")
        if not 0 < self.line <= len(lines):
            return told
        line = lines[self.line - 1]
        before = "".join(mark if mark == "\t" else " " for mark in line[: self.column - 1])
        return f"{told}\n  {line}\n  {before}{'^' * max(min(self.length, len(line)), 1)}"


class TooLarge(Refused):
    """The body, or what it asks for, is larger than the service takes."""

    advice = "Send less at once."


class TooManyRequests(Refused):
    """The service takes no more of this key for now, though the client has waited for ``retry_for`` seconds."""

    advice = "Wait, or give Curator a larger retry_for."


class Unavailable(Refused):
    """The service cannot answer now. Nothing was answered twice: the same call with the same key may be repeated."""

    advice = "Try again later."


class Unreachable(CuratorError):
    """No reply came, however often the call was tried; what it asked for may or may not have been done."""


class ProtocolError(CuratorError):
    """A reply that the contract does not allow: most likely something else listens at that address."""


class NotVerified(CuratorError):
    """A session's transcript does not replay, or is not the one of the answers that this client got."""


class Contradicted(NotVerified):
    """The log is not what it was, or not what was signed."""


class BatchFailed(CuratorError):
    """Some questions of a batch were refused. The others are answered, and paid for.

    Attributes:
        results: what came of each question in order: its answer, or the refusal.
    """

    def __init__(self, results: list[Answer | Table | Refused]) -> None:
        super().__init__(results)
        self.results = results

    def __str__(self) -> str:
        refused = [each for each in self.results if isinstance(each, Refused)]
        first = f"; the first: {refused[0]}".rstrip(".") if refused else ""
        return (
            f"{len(refused):,} of {len(self.results):,} questions were refused{first}. "
            'The answers stand in results; on_error="return" gives refusals in their places.'
        )


class MissingExtra(CuratorError, ImportError):
    """A part of the package that needs more than what is installed; the text names the command that installs it."""

    def __init__(self, extra: str) -> None:
        super().__init__(extra)
        self.extra = extra

    def __str__(self) -> str:
        return f"this needs the extra {self.extra!r}: pip install 'curator-client[{self.extra}]'"


#: The class of each problem that the service names.
_REFUSALS: Mapping[str, type[Refused]] = {
    "unauthenticated": BadKey,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "method-not-allowed": InvalidRequest,
    "request-timeout": Unavailable,
    "conflict": Conflict,
    "budget-exhausted": BudgetExhausted,
    "updates-exhausted": QuestionsExhausted,
    "queries-exhausted": QuestionsExhausted,
    "session-closed": SessionClosed,
    "release-ended": Conflict,
    "idempotency-conflict": Conflict,
    "payload-too-large": TooLarge,
    "invalid-request": InvalidRequest,
    "invalid-query": InvalidQuestion,
    "invalid-dataset": InvalidDataset,
    "plan-infeasible": TooExact,
    "sql-refused": SqlRefused,
    "too-many-requests": TooManyRequests,
    "release-failed": Unavailable,
    "audit-failed": Unavailable,
    "unavailable": Unavailable,
    "source-moved": Unavailable,
    "source-unavailable": Unavailable,
    "release-too-long": Unavailable,
}
#: And of each status, for problems that this version does not know and replies of what stands between.
_STATUSES: Mapping[int, type[Refused]] = {
    401: BadKey,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def refusal(body: object, status: int, retry_after: float | None = None) -> Refused:
    """The refusal that a reply states.

    Args:
        body: the reply's JSON; whatever is no problem object is a refusal by its status alone.
        status: of HTTP.
        retry_after: the seconds that the reply's header names, where it has one.
    """
    fields = dict(body) if isinstance(body, Mapping) else {"detail": "the reply was not a problem object"}
    kind = str(fields.pop("type", "")).rsplit("/", 1)[-1] or "unknown"
    title = str(fields.pop("title", "")) or (f"HTTP {status}" if kind == "unknown" else kind)
    detail = str(fields.pop("detail", ""))
    stated = fields.pop("status", status)
    status = stated if isinstance(stated, int) else status
    if retry_after is not None:
        fields.setdefault("retry_after", retry_after)
    return _REFUSALS.get(kind, _STATUSES.get(status, Refused))(kind, title, status, detail, fields)


def _number(value: object) -> float | None:
    """A number as replies have it, an amount as its text too; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _told(extra: Mapping[str, Any], name: str) -> float:
    number = _number(extra.get(name))
    return float("nan") if number is None else number


def _whole(extra: Mapping[str, Any], name: str) -> int:
    value = extra.get(name)
    return value if isinstance(value, int) else 1
