"""The Python client of the curator's HTTP interface.

It knows the contract alone, and nothing of how the service works::

    from curator_client import Curator, predicate

    with Curator("http://127.0.0.1:8000", api_key) as curator:
        with curator.open_session(
            "adult", {"construction": "mw"}, epsilon=0.5, max_queries=1000, max_updates=100
        ) as session:
            answer = session.ask(predicate(age={"between": [30, 40]}))
            print(answer)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curator_client.curator import Curator, Session
    from curator_client.errors import NotVerified, ProtocolError, Refused, Unreachable
    from curator_client.log import LogFolder
    from curator_client.models import (
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
    from curator_client.queries import (
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
    from curator_client.releases import Release, ReleaseState, Way, WorkloadPlan
    from curator_client.replies import Answer, AnswerAxis, Marginal

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
    "ProtocolError",
    "Refused",
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

# Each name is imported when it is first used: the service imports this package for the proofs alone, and a command
# line begins with it.
_MODULES = {
    "Curator": "curator",
    "Session": "curator",
    "NotVerified": "errors",
    "ProtocolError": "errors",
    "Refused": "errors",
    "Unreachable": "errors",
    "LogFolder": "log",
    "Budget": "models",
    "BudgetSum": "models",
    "Check": "models",
    "CheckedProblem": "models",
    "Commitment": "models",
    "Comparison": "models",
    "Dataset": "models",
    "Grant": "models",
    "Holder": "models",
    "Hypothesis": "models",
    "Ledger": "models",
    "Member": "models",
    "Plan": "models",
    "PlanOutcome": "models",
    "Principal": "models",
    "Report": "models",
    "SessionState": "models",
    "Dense": "queries",
    "blocks": "queries",
    "cut": "queries",
    "degrees": "queries",
    "dense": "queries",
    "elements": "queries",
    "marginal": "queries",
    "predicate": "queries",
    "product": "queries",
    "rank_one": "queries",
    "sparse": "queries",
    "statistic": "queries",
    "unverified": "queries",
    "weighted": "queries",
    "where": "queries",
    "Release": "releases",
    "ReleaseState": "releases",
    "Way": "releases",
    "WorkloadPlan": "releases",
    "Answer": "replies",
    "AnswerAxis": "replies",
    "Marginal": "replies",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
