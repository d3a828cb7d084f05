"""What becomes of a folder that is replayed, as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

from app.audit.books import Book, Books
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.notes import Checkpoint


@dataclass(frozen=True)
class FolderVerdict:
    """The outcome of a folder's replay.

    Attributes:
        ok: whether all follows.
        log: the checkpoint that it was held against.
        datasets, sessions: a summary of each, in the order of the log; empty unless all follows.
        broken: what does not follow, and where; None where all does.
    """

    ok: bool
    log: Checkpoint
    datasets: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    broken: Unfollowed | None = None

    @classmethod
    def of(cls, log: Checkpoint, books: Books, sessions: Mapping[str, dict[str, Any]]) -> Self:
        """Where all follows: the books of a log, and the summaries of its sessions."""
        counts = {name: dict.fromkeys(_COUNTS, 0) for name in books.books}
        for told in sessions.values():
            found, kind = counts[told["dataset"]], "releases" if told["release"] else "sessions"
            found[kind] += 1
            found[f"open_{kind}"] += told["status"] == "open"
            for name in _SUMMED:
                found[name] += told[name]
        datasets = [_dataset(book, counts[name]) for name, book in books.books.items()]
        return cls(True, log, datasets, [*sessions.values()])

    def document(self) -> dict[str, Any]:
        """As JSON. Fields are only ever added.

        - ``ok``; ``problem``, a sentence, and ``where`` with ``dataset``, ``session``, ``movement`` (its number) and
          ``entry`` (its sequence), each null where it is of none; ``problem`` and ``where`` are null where all follows.
        - ``log``: ``origin``, ``size``, ``root`` (hexadecimal).
        - ``datasets``: of each ``dataset``, ``kind``, ``retired_at`` (null while it is not), ``sessions`` (releases
          not among them), ``open_sessions`` (nor here), ``releases``, ``open_releases``, ``answers``,
          ``measurements`` (answers and releases that were measured), ``forfeits``, ``movements``, ``epsilon``,
          ``delta``, ``order``, ``regime``, ``impure``; ``budget``, ``spent``, ``reserved`` and ``remaining``, each with
          ``renyi`` and ``pure``, exact amounts in the two sums, and ``epsilon``, that in the sum of the ``regime``,
          rounded against the spender; ``entries_not_in_log`` and ``movements_not_in_log``.
        - ``sessions``: of each ``session``, ``dataset``, ``release`` (whether it is of one), ``construction``,
          ``status``, ``opened_at``, ``entries``, ``answers``, ``measurements``, ``forfeits``, ``spent`` and
          ``reserved`` with ``renyi`` and ``pure`` (null where not all of its noise is pure), ``head_hash``,
          ``entries_not_in_log`` and ``movements_not_in_log``.

        Amounts and epsilons are decimal strings.
        """
        broken, where = self.broken, None
        if broken is not None:
            where = {name: getattr(broken, name) for name in ("dataset", "session", "movement", "entry")}
        return {
            "ok": self.ok,
            "problem": None if broken is None else broken.problem,
            "where": where,
            "log": {"origin": self.log.origin, "size": self.log.size, "root": self.log.root.hex()},
            "datasets": self.datasets,
            "sessions": self.sessions,
        }


#: What is counted of sessions one by one, and what is added up of them.
_SUMMED = ("answers", "measurements", "forfeits", "entries_not_in_log", "movements_not_in_log")
_COUNTS = ("sessions", "open_sessions", "releases", "open_releases", *_SUMMED)


def _dataset(book: Book, counts: dict[str, int]) -> dict[str, Any]:
    """The summary of a data set; see :meth:`FolderVerdict.document`."""
    account, spec = book.account, book.registered.public.spec
    budget, shown = account.budget, account.shown(account.regime, account.budget.epsilon)
    return {
        "dataset": spec.name,
        "kind": spec.kind,
        "retired_at": book.registered.retired_at,
        **counts,
        "movements": book.movements,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "order": str(budget.order),
        "regime": account.regime,
        "impure": account.impure,
        "budget": {"renyi": str(budget.total), "pure": str(budget.epsilon), "epsilon": str(budget.epsilon)},
        "spent": _amounts(account.spent, account.pure_spent, shown.spent),
        "reserved": _amounts(account.reserved, account.pure_reserved, shown.reserved),
        "remaining": _amounts(account.remaining, account.pure_remaining, shown.remaining),
    }


def _amounts(renyi: Decimal, pure: Decimal, epsilon: Decimal) -> dict[str, str]:
    return {"renyi": str(renyi), "pure": str(pure), "epsilon": str(epsilon)}
