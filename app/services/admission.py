"""Who may open what: the share that somebody asks for is refused here where he may not hold it, or the data set does
not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import SessionPlan
from app.curator.request import SessionRequest
from app.privacy.errors import PrivacyError
from app.privacy.exactness import floor_to
from app.privacy.ledger import NOTHING, Amounts
from app.services import spending
from app.services.datasets import standing
from app.services.errors import BudgetExhausted
from app.services.grants import check_granted
from app.services.ports import DatasetRow, Holding, Transaction
from app.services.principals import Principal


def admitted(
    tx: Transaction,
    row: DatasetRow,
    actor: Principal,
    request: SessionRequest,
    holdings: Sequence[Holding],
    held: bool,
    plan: SessionPlan | None = None,
) -> PublicDataset:
    """Refuse what the actor may not hold or the data set does not have; give what the session is planned on.

    Before there is a plan, an epsilon is refused that neither sum of the budget has. An epsilon of 0 takes nothing of
    the budget or of a grant, and is refused only to who may not see the data set.

    Args:
        tx: in which it is looked.
        row: the data set.
        actor: who asks.
        request: what for.
        holdings: what was taken of the data set (:meth:`Transaction.taken`).
        held: whether any open session held something, looked at before that: what closes between the two is taken off.
        plan: what it would take; None where there is none yet.

    Raises:
        Forbidden, BudgetExhausted, PlanInfeasible.
    """
    if request.calibration == "exact":
        _check_untouched(tx, row, request)
    dataset, account = standing(row, holdings)
    # What open sessions were opened with counts as held, though it may be spent.
    dataset = replace(dataset, left=account.all_spent.whole if request.may_be_pure and not held else None)
    if plan is None:
        try:
            holds = (
                NOTHING
                if not request.epsilon
                else Amounts(dataset.budget.share(request.epsilon), floor_to(Fraction(request.epsilon)))
            )
        except PrivacyError as error:
            raise PlanInfeasible(str(error)) from None
    else:
        holds = plan.holds
    check_granted(tx, row, actor, holdings, dataset.budget, holds, request.epsilon)
    spending.check_share(account, holds, request.epsilon)
    return dataset


def _check_untouched(tx: Transaction, row: DatasetRow, request: SessionRequest) -> None:
    """An exact calibration counts the whole guarantee as one session with one noise: it must be the first thing ever
    asked. That nothing is spent or reserved is not enough: a session that was closed after misses alone holds
    nothing, and the program counts its own misses only.

    Raises:
        BudgetExhausted: when the budget ever moved.
    """
    if tx.has_moved(row.name):
        raise BudgetExhausted(
            "exact calibration takes a data set on which nothing was ever opened: use rdp, or another data set",
            requested=request.epsilon,
            remaining=Decimal(0),
        )
