"""What replies look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    """A reply; more fields may come."""

    model_config = ConfigDict(extra="allow")


class ProblemDocument(Reply):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


class NewPrincipal(Reply):
    """A principal with its key, which is shown this once."""

    name: str
    role: Literal["admin", "analyst", "auditor"]
    api_key: str


class PrincipalView(Reply):
    """A principal."""

    name: str
    role: str
    created_at: str
    revoked_at: str | None


class BudgetView(Reply):
    """A data set's budget as epsilons; remaining = epsilon - spent - reserved."""

    epsilon: float
    delta: float
    spent_epsilon: float
    reserved_epsilon: float
    remaining_epsilon: float


class DatasetView(Reply):
    """A data set's public descriptor."""

    name: str
    kind: str
    domain: dict[str, Any]
    privacy_unit: str
    budget: BudgetView
    shape: list[int]
    cells: int | None
    status: Literal["registered", "retired"]


class GrantView(Reply):
    """An analyst's cap on a data set."""

    dataset: str
    principal: str
    epsilon: float


class LedgerView(Reply):
    """Exact amounts at the ledger's Renyi order, as decimal strings."""

    dataset: str
    order: str
    budget: str
    spent: str
    reserved: str
    remaining: str
    sum: str
    entries: list[dict[str, Any]]


class PlanView(Reply):
    """What a session will do and promises; errors and scales in counts."""

    noise_scale: float
    threshold: float
    error_bound: float
    beta: float
    max_updates: int
    max_queries: int
    guaranteed: bool
    step_size: float | None
    epsilon: float
    epsilon_alone: float
    delta: float
    calibration: str


class PlanOutcome(Reply):
    """A mechanism with its plan, or with the problem that kept it from one."""

    mechanism: dict[str, Any]
    plan: PlanView | None = None
    problem: ProblemDocument | None = None


class GaussianView(Reply):
    """Independent Gaussian noise on every answer, in counts: the line that a mechanism has to beat."""

    sigma: float
    error_bound: float


class ComparisonView(Reply):
    """Plans in the order of the mechanisms; ``best`` is the index of the one with the least error bound."""

    plans: list[PlanOutcome]
    best: int | None
    independent_gaussian: GaussianView
    advice: str


class SessionView(Reply):
    """A session's public state."""

    id: str
    dataset: str
    owner: str
    mechanism: dict[str, Any]
    plan: PlanView
    status: Literal["open", "closed"]
    queries_asked: int
    queries_left: int
    updates_used: int
    updates_left: int
    spent: str
    reserved: str
    head_hash: str


class AnswerView(Reply):
    """A released value with its bound and its place in the transcript."""

    sequence: int
    value: float
    source: Literal["hypothesis", "measurement", "cached"]
    error_bound: float | None
    beta: float
    updates_used: int
    updates_left: int
    queries_left: int
    entry_hash: str


class BatchView(Reply):
    """Answers in the order of the queries; one that failed is a problem in its place."""

    answers: list[AnswerView | ProblemDocument]


class Health(Reply):
    """Whether the service can work."""

    status: str


class Principals(BaseModel):
    """A list of principals."""

    items: list[PrincipalView]


class Datasets(BaseModel):
    """A list of data sets."""

    items: list[DatasetView]


class Sessions(BaseModel):
    """A list of sessions."""

    items: list[SessionView]
