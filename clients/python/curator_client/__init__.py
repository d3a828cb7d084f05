"""The Python client of a curator: questions to private data under differential privacy.

It knows the contract of HTTP, and nothing of how the service works::

    from curator_client import Curator, col, where

    with Curator() as curator, curator.session("couples", epsilon=1.0, max_queries=30) as session:
        print(session.count(col("hrwage") >= 20, age=(None, 35)))
        print(session.ask(where(inlf=1).by("educ").mean("faminc")))

``Curator()`` reads ``CURATOR_URL`` and ``CURATOR_API_KEY``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curator_client._async.audits import AsyncAudit
    from curator_client._async.curator import AsyncCurator
    from curator_client._async.datasets import AsyncDataset, AsyncMeasurement, AsyncRegistered
    from curator_client._async.log import AsyncLog
    from curator_client._async.releases import AsyncRelease
    from curator_client._async.session import AsyncSession
    from curator_client._sync.audits import Audit
    from curator_client._sync.curator import Curator
    from curator_client._sync.datasets import Dataset, Measurement, Registered
    from curator_client._sync.log import Log
    from curator_client._sync.releases import Release
    from curator_client._sync.session import Session
    from curator_client.answers import Answer, Axis, Cell, Json, Label, Path, Row, Source, Table, Told
    from curator_client.audit_states import AuditState
    from curator_client.conditions import Condition, col
    from curator_client.errors import (
        BadKey,
        BatchFailed,
        BudgetExhausted,
        Conflict,
        Contradicted,
        CuratorError,
        Forbidden,
        InvalidDataset,
        InvalidQuestion,
        InvalidRequest,
        MissingExtra,
        NotFound,
        NotVerified,
        ProtocolError,
        QuestionsExhausted,
        Refused,
        SessionClosed,
        SqlRefused,
        TooExact,
        TooLarge,
        TooManyRequests,
        Unavailable,
        Unreachable,
    )
    from curator_client.mechanisms import FK, MD, MW, SMW, Mechanism, Median, Simple, Step
    from curator_client.models import (
        Attribute,
        Budget,
        BudgetSum,
        Check,
        CheckedProblem,
        Commitment,
        Comparison,
        Grant,
        Holder,
        Hypothesis,
        Key,
        Ledger,
        Movement,
        Plan,
        PlanOutcome,
        Principal,
        Report,
        Role,
        SessionState,
    )
    from curator_client.progress import Progress
    from curator_client.questions import (
        Bins,
        By,
        Dense,
        Grouped,
        Groups,
        Nodes,
        Question,
        Selection,
        Side,
        blocks,
        by,
        cut,
        degrees,
        dense,
        elements,
        product,
        question,
        rank_one,
        sparse,
        where,
    )
    from curator_client.release_states import Method, ReleaseState, Way, WorkloadPlan
    from curator_client.requests import Amount
    from curator_client.results import Price, SqlResult, WhatIf
    from curator_client.transcripts import replay
    from curator_client.verdict import Fetched, Verdict

    __version__: str

__all__ = [
    "FK",
    "MD",
    "MW",
    "SMW",
    "Amount",
    "Answer",
    "AsyncAudit",
    "AsyncCurator",
    "AsyncDataset",
    "AsyncLog",
    "AsyncMeasurement",
    "AsyncRegistered",
    "AsyncRelease",
    "AsyncSession",
    "Attribute",
    "Audit",
    "AuditState",
    "Axis",
    "BadKey",
    "BatchFailed",
    "Bins",
    "Budget",
    "BudgetExhausted",
    "BudgetSum",
    "By",
    "Cell",
    "Check",
    "CheckedProblem",
    "Commitment",
    "Comparison",
    "Condition",
    "Conflict",
    "Contradicted",
    "Curator",
    "CuratorError",
    "Dataset",
    "Dense",
    "Fetched",
    "Forbidden",
    "Grant",
    "Grouped",
    "Groups",
    "Holder",
    "Hypothesis",
    "InvalidDataset",
    "InvalidQuestion",
    "InvalidRequest",
    "Json",
    "Key",
    "Label",
    "Ledger",
    "Log",
    "Measurement",
    "Mechanism",
    "Median",
    "Method",
    "MissingExtra",
    "Movement",
    "Nodes",
    "NotFound",
    "NotVerified",
    "Path",
    "Plan",
    "PlanOutcome",
    "Price",
    "Principal",
    "Progress",
    "ProtocolError",
    "Question",
    "QuestionsExhausted",
    "Refused",
    "Registered",
    "Release",
    "ReleaseState",
    "Report",
    "Role",
    "Row",
    "Selection",
    "Session",
    "SessionClosed",
    "SessionState",
    "Side",
    "Simple",
    "Source",
    "SqlRefused",
    "SqlResult",
    "Step",
    "Table",
    "Told",
    "TooExact",
    "TooLarge",
    "TooManyRequests",
    "Unavailable",
    "Unreachable",
    "Verdict",
    "Way",
    "WhatIf",
    "WorkloadPlan",
    "__version__",
    "blocks",
    "by",
    "col",
    "cut",
    "degrees",
    "dense",
    "elements",
    "product",
    "question",
    "rank_one",
    "replay",
    "sparse",
    "where",
]

# Each name is imported when it is first used: the service imports this package for the proofs alone, and a command
# line begins with it.
_MODULES = {
    "Amount": "requests",
    "Answer": "answers",
    "AsyncAudit": "_async.audits",
    "AsyncCurator": "_async.curator",
    "AsyncDataset": "_async.datasets",
    "AsyncLog": "_async.log",
    "AsyncMeasurement": "_async.datasets",
    "AsyncRegistered": "_async.datasets",
    "AsyncRelease": "_async.releases",
    "AsyncSession": "_async.session",
    "Attribute": "models",
    "Audit": "_sync.audits",
    "AuditState": "audit_states",
    "Axis": "answers",
    "BadKey": "errors",
    "BatchFailed": "errors",
    "Bins": "questions",
    "Budget": "models",
    "BudgetExhausted": "errors",
    "BudgetSum": "models",
    "By": "questions",
    "Cell": "answers",
    "Check": "models",
    "CheckedProblem": "models",
    "Commitment": "models",
    "Comparison": "models",
    "Condition": "conditions",
    "Conflict": "errors",
    "Contradicted": "errors",
    "Curator": "_sync.curator",
    "CuratorError": "errors",
    "Dataset": "_sync.datasets",
    "Dense": "questions",
    "FK": "mechanisms",
    "Fetched": "verdict",
    "Forbidden": "errors",
    "Grant": "models",
    "Grouped": "questions",
    "Groups": "questions",
    "Holder": "models",
    "Hypothesis": "models",
    "InvalidDataset": "errors",
    "InvalidQuestion": "errors",
    "InvalidRequest": "errors",
    "Json": "answers",
    "Key": "models",
    "Label": "answers",
    "Ledger": "models",
    "Log": "_sync.log",
    "MD": "mechanisms",
    "MW": "mechanisms",
    "Measurement": "_sync.datasets",
    "Mechanism": "mechanisms",
    "Median": "mechanisms",
    "Method": "release_states",
    "MissingExtra": "errors",
    "Movement": "models",
    "Nodes": "questions",
    "NotFound": "errors",
    "NotVerified": "errors",
    "Path": "answers",
    "Plan": "models",
    "PlanOutcome": "models",
    "Price": "results",
    "Principal": "models",
    "Progress": "progress",
    "ProtocolError": "errors",
    "Question": "questions",
    "QuestionsExhausted": "errors",
    "Refused": "errors",
    "Registered": "_sync.datasets",
    "Release": "_sync.releases",
    "ReleaseState": "release_states",
    "Report": "models",
    "Role": "models",
    "Row": "answers",
    "SMW": "mechanisms",
    "Selection": "questions",
    "Session": "_sync.session",
    "SessionClosed": "errors",
    "SessionState": "models",
    "Side": "questions",
    "Simple": "mechanisms",
    "Source": "answers",
    "SqlRefused": "errors",
    "SqlResult": "results",
    "Step": "mechanisms",
    "Table": "answers",
    "Told": "answers",
    "TooExact": "errors",
    "TooLarge": "errors",
    "TooManyRequests": "errors",
    "Unavailable": "errors",
    "Unreachable": "errors",
    "Verdict": "verdict",
    "Way": "release_states",
    "WhatIf": "results",
    "WorkloadPlan": "release_states",
    "blocks": "questions",
    "by": "questions",
    "col": "conditions",
    "cut": "questions",
    "degrees": "questions",
    "dense": "questions",
    "elements": "questions",
    "product": "questions",
    "question": "questions",
    "rank_one": "questions",
    "replay": "transcripts",
    "sparse": "questions",
    "where": "questions",
}


def __getattr__(name: str) -> Any:
    found: object
    if name == "__version__":
        from importlib.metadata import version

        found = version("curator-client")
    elif name in _MODULES:
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
