"""Refusals of the service."""

from __future__ import annotations

from decimal import Decimal

from app.declarations.errors import CuratorError


class Unauthenticated(CuratorError):
    """No key, or one that is not known or was revoked."""

    code = "unauthenticated"


class Forbidden(CuratorError):
    """The key's role may not do this."""

    code = "forbidden"


class NotFound(CuratorError):
    """There is no such thing, or it is somebody else's."""

    code = "not-found"


class Conflict(CuratorError):
    """A name is in use, now or before."""

    code = "conflict"


class BudgetExhausted(CuratorError):
    """A share passes what is left of a budget; both are epsilons of the data set."""

    code = "budget-exhausted"

    def __init__(self, detail: str, requested: Decimal, remaining: Decimal) -> None:
        super().__init__(detail, requested=float(requested), remaining=float(remaining))


class IdempotencyConflict(CuratorError):
    """An idempotency key came back with another body."""

    code = "idempotency-conflict"


class PayloadTooLarge(CuratorError):
    """A body or batch passes its limit."""

    code = "payload-too-large"


class RequestTimeout(CuratorError):
    """The request came too slowly to be waited for."""

    code = "request-timeout"


class TooManyRequests(CuratorError):
    """The caller must slow down, for so many seconds."""

    code = "too-many-requests"

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.retry_after = retry_after


class Unavailable(CuratorError):
    """The service cannot answer now; nothing was lost and the same request may be sent again."""

    code = "unavailable"

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.retry_after = retry_after


class SourceMoved(Unavailable):
    """Records that stay where they are are not what was registered."""

    code = "source-moved"


class SourceUnavailable(Unavailable):
    """Records that stay where they are cannot be counted now."""

    code = "source-unavailable"


class ReleaseFailed(CuratorError):
    """A release came to nothing by a fault of the service, or of what it was made of."""

    code = "release-failed"


class ReleaseTooLong(CuratorError):
    """Nothing was made of a release's measurements within the time that there is."""

    code = "release-too-long"


class ReleaseEnded(CuratorError):
    """A release was ended by whoever may, while something was measured for it or made of that."""

    code = "release-ended"


class AuditFailed(CuratorError):
    """An audit came to nothing by a fault of the service."""

    code = "audit-failed"


class QueueFull(Unavailable):
    """As many requests as may wait for a session's turn do so already."""
