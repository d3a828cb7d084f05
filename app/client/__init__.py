"""The Python client of the curator's HTTP interface.

It knows the contract alone, and nothing of how the service works::

    from app.client import Curator, predicate

    with Curator("http://127.0.0.1:8000", api_key) as curator:
        with curator.open_session(
            "adult", {"construction": "mw"}, epsilon=0.5, max_queries=1000, max_updates=100
        ) as session:
            answer = session.ask(predicate(age={"between": [30, 40]}))
            print(answer)
"""

from app.client.answers import Answer, AnswerAxis, Marginal
from app.client.curator import Curator, Session
from app.client.errors import NotVerified, Problem, ProtocolError, Unreachable
from app.client.log import LogFolder
from app.client.models import (
    Budget,
    BudgetSum,
    Check,
    CheckedProblem,
    Commitment,
    Comparison,
    Dataset,
    Grant,
    Holder,
    Hypothesis,
    Ledger,
    Member,
    Plan,
    PlanOutcome,
    Principal,
    Report,
    SessionState,
)
from app.client.queries import (
    Dense,
    blocks,
    cut,
    degrees,
    dense,
    elements,
    marginal,
    predicate,
    product,
    rank_one,
    sparse,
    statistic,
    unverified,
    weighted,
    where,
)
from app.client.releases import Release, ReleaseState, Way, WorkloadPlan

__all__ = [
    "Answer",
    "AnswerAxis",
    "Budget",
    "BudgetSum",
    "Check",
    "CheckedProblem",
    "Commitment",
    "Comparison",
    "Curator",
    "Dataset",
    "Dense",
    "Grant",
    "Holder",
    "Hypothesis",
    "Ledger",
    "LogFolder",
    "Marginal",
    "Member",
    "NotVerified",
    "Plan",
    "PlanOutcome",
    "Principal",
    "Problem",
    "ProtocolError",
    "Release",
    "ReleaseState",
    "Report",
    "Session",
    "SessionState",
    "Unreachable",
    "Way",
    "WorkloadPlan",
    "blocks",
    "cut",
    "degrees",
    "dense",
    "elements",
    "marginal",
    "predicate",
    "product",
    "rank_one",
    "sparse",
    "statistic",
    "unverified",
    "weighted",
    "where",
]
