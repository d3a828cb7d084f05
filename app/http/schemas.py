"""Models of bodies and replies, for the OpenAPI document.

What a use case judges is left to it: of such a body the models here say no more than its fields, and of a reply nothing
is checked again.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from app.constructions.mechanism import AnyMechanism
from app.curator.comparison import MOST_MECHANISMS
from app.curator.plan import BoundStatus
from app.curator.request import MOST_QUERIES, SessionRequest
from app.declarations.spec import NAME, Spec


class Body(BaseModel):
    """A body with some fields and no others; ``refusal`` is said of one with others."""

    model_config = ConfigDict(extra="forbid")

    refusal: ClassVar[str]


class PrincipalRequest(Body):
    """A principal to be added."""

    refusal = "give name and role, and nothing else"

    name: Annotated[Any, WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})]
    role: Annotated[Any, WithJsonSchema({"enum": ["admin", "analyst", "auditor"]})]


_Url = Annotated[Any, WithJsonSchema({"type": "string", "format": "password", "maxLength": 4096})]


class ConnectionRequest(Body):
    """A connection to be added."""

    refusal = "give name and url, and nothing else"

    name: Annotated[Any, WithJsonSchema({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"})]
    url: _Url


class UrlRequest(Body):
    """Another URL of a connection."""

    refusal = "give url, and nothing else"

    url: _Url


class KeyRequest(Body):
    """A new key, of which nothing is to be said."""

    refusal = "a new key takes no body, or {}"


class GrantRequest(Body):
    """An analyst's cap, as an epsilon of the data set's."""

    refusal = "give epsilon, and nothing else"

    epsilon: Annotated[Any, WithJsonSchema({"type": "number", "minimum": 0})]


class RevealRequest(Body):
    """A revelation, of which nothing is to be said."""

    refusal = "to reveal a commitment takes no body, or {}"


class AuditRequest(Body):
    """What is to be audited: the whole service, or the log with the transcript of one session. ``checkpoint`` is the
    text of one that you kept, which the log is to begin with.
    """

    refusal = (
        'name {"session": ID} or {"all": true}, one of them, and if you like "checkpoint", the text of a signed one '
        "that you kept; nothing else"
    )

    session: Annotated[Any, WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{32}$"})] = None
    all: Annotated[Any, WithJsonSchema({"const": True})] = None
    checkpoint: Annotated[Any, WithJsonSchema({"type": "string", "minLength": 1})] = None

    @model_validator(mode="after")
    def _one_of_them(self) -> AuditRequest:
        whole = self.all is True and self.session is None
        alone = self.all is None and isinstance(self.session, str)
        if not (whole or alone) or not isinstance(self.checkpoint, str | None):
            raise ValueError
        return self


class Declaration(RootModel[Annotated[Spec, Field(discriminator="kind")]]):
    """What is declared of a data set, by its kind: docs/datasets.md."""


class ComparisonRequest(SessionRequest):
    """A session asked for with several mechanisms, to compare their plans."""

    mechanism: SkipJsonSchema[AnyMechanism]
    mechanisms: list[AnyMechanism] = Field(
        min_length=1, max_length=MOST_MECHANISMS, description="mechanisms to compare, in the place of mechanism"
    )


class Swept(Body):
    """The values to sweep over: for each epsilon every number of questions, at most 48 points in all."""

    refusal = "name lists of values of epsilon, of max_queries or of both, and nothing else"

    epsilon: list[Annotated[float, Field(ge=0, le=1000)]] = Field(default=[], min_length=1)
    max_queries: list[Annotated[int, Field(ge=1, le=MOST_QUERIES)]] = Field(default=[], min_length=1)


class SweepRequest(SessionRequest):
    """A session asked for with several shares or numbers of questions, to see what each would promise."""

    dataset: str = Field(default="", max_length=64, description="left out beside a declaration")
    declaration: Declaration | SkipJsonSchema[None] = Field(
        default=None, description="of a data set that is not registered, in the place of dataset: what it would buy"
    )
    epsilon: Decimal = Field(default=Decimal(0), ge=0, le=1000, description="unless it is swept over")
    sweep: Swept


_File = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "string",
            "format": "binary",
            "description": "CSV, TSV, text, Excel (.xlsx), Parquet, .npy or .npz; the file's name tells which. A "
            "matrix: an array of its shape (.npy, .npz); Parquet with a column for each of its columns and its rows in "
            "order; or columns row, column, value, with absent declared",
        }
    ),
]


class RegistrationForm(BaseModel):
    """A data set: its declaration and its file, which is left out where the declaration names a ``source``."""

    spec: Declaration
    data: _File = None


class CheckForm(BaseModel):
    """A file and, as far as it is known, its declaration."""

    spec: str = Field(
        default="",
        description="the declaration as JSON or YAML, as far as it is known: what is left out is drafted; or a "
        "SmartNoise or CSVW document",
    )
    data: _File


class Reply(BaseModel):
    """A reply; more fields may come."""

    model_config = ConfigDict(extra="allow")


class ProblemDocument(Reply):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class NewPrincipal(Reply):
    """A principal with its key, which is shown this once."""

    name: str
    role: Literal["admin", "analyst", "auditor"]
    api_key: str


class ConnectionView(Reply):
    """A connection to a database, without its secret."""

    name: str
    type: str
    created_at: str
    created_by: str


class ConnectionCheck(Reply):
    """What is wrong with a connection's database, or with what its role may do."""

    name: str
    problems: list[str]


class PrincipalView(Reply):
    """A principal."""

    name: str
    role: str
    created_at: str
    revoked_at: str | None


class SumView(Reply):
    """A budget's spent, reserved and remaining part by one of its two sums, as epsilons."""

    spent_epsilon: float
    reserved_epsilon: float
    remaining_epsilon: float


class BudgetView(SumView):
    """A data set's budget as epsilons.

    What is spent, reserved and left is said of its ``regime``, the sum that has more left (where as much is left of
    both, the one of which less is spent), so that it never passes ``epsilon``: ``renyi``, in which everything is
    counted, or ``pure``, in which pure noise is, until other noise may have been taken (``impure``). Both stand beside
    it. A session of pure noise may take all that is left of ``pure``, or have a part of it whose price in
    the other sum is no more than its share there.
    """

    epsilon: float
    delta: float
    regime: Literal["renyi", "pure"]
    renyi: SumView
    pure: SumView
    impure: bool


class GrantView(SumView):
    """What somebody may hold and spend of a data set, and what of that is spent, reserved and left, as epsilons.

    ``epsilon`` is the cap, null without a grant; then what remains is counted from the data set's whole epsilon.
    ``available_epsilon`` is what a session could have at most: no more than remains of the grant, nor than the data set
    has left. ``regime``, ``renyi``, ``pure`` and ``impure`` are as in a data set's budget, of this analyst alone. A cap
    is a part of the budget, and no guarantee: ``epsilon_alone`` is what these answers would keep with the data set's
    delta were they all that is ever computed from the data; with those of everybody else they keep the data set's.
    """

    dataset: str
    principal: str
    epsilon: float | None
    epsilon_alone: float
    regime: Literal["renyi", "pure"]
    renyi: SumView
    pure: SumView
    impure: bool
    available_epsilon: float


class DatasetView(Reply):
    """A data set's public descriptor. ``commitment`` is the one to its private file, null where it was registered
    before there were any. ``grant`` is the caller's own and what is left of it, null for who has none.
    """

    name: str
    kind: str
    domain: dict[str, Any]
    privacy_unit: str
    budget: BudgetView
    shape: list[int]
    cells: int | None
    status: Literal["registered", "retired"]
    commitment: str | None
    grant: GrantView | None


class CommitmentView(Reply):
    """The commitment to a data set's private file, and the key that shows a file to be the one: docs/audit.md."""

    dataset: str
    algorithm: Literal["HMAC-SHA-256"]
    commitment: str
    key: str


class TallyView(Reply):
    """Records that an attribute dropped, and kept ones whose value it moved to a bound or that have none."""

    dropped: int
    clamped: int
    missing: int


class ReportView(Reply):
    """The fate of the records of a table's file; ``dropped`` and ``clamped`` count a record once, and ``beyond_cap``
    are those of persons who have more than are kept of anybody. Of a graph whose ``unit`` is a node of one side records
    are different edges, and ``beyond_cap`` are those that were left out of nodes with too many.
    """

    read: int
    kept: int
    dropped: int
    clamped: int
    beyond_cap: int
    attributes: dict[str, TallyView]


class RegisteredView(DatasetView):
    """A new data set's public descriptor, with warnings and, of a table or of a graph with a ``unit``, a report that
    only the admin who registered it gets, in this reply.
    """

    warnings: list[str]
    report: ReportView | None


class CheckedProblem(Reply):
    """Something that a registration would be refused for; ``row`` and ``attribute`` say where, if it has a place."""

    detail: str
    row: int = 0
    attribute: str = ""


class CheckView(Reply):
    """The findings of a check, and the declaration with what was left out of it.

    ``report`` tells what would become of the file's records, null where that is not known. ``warnings`` are those of a
    registration, and one more where the file was read for a draft; ``notes`` tell what was left out of the declaration,
    or read otherwise than it was written.
    """

    spec: dict[str, Any]
    problems: list[CheckedProblem]
    report: ReportView | None
    warnings: list[str]
    notes: list[str]


class GrantedView(GrantView):
    """A grant that was given; ``promises`` says in words what it promises, alone and with others."""

    promises: str


class HolderView(Reply):
    """Who holds and spent how much in a session, or in that of a release, and since when; not what was asked.

    ``spent_epsilon`` and ``reserved_epsilon`` are parts of ``epsilon``, with which it was opened, in the sum that
    ``regime`` names. ``updates_used`` is how often it was charged. ``asked_at`` is when an open one got its last
    answer, free or not; null where there is none.
    """

    id: str
    dataset: str
    owner: str
    construction: str
    status: Literal["open", "closed"]
    epsilon: float
    regime: Literal["renyi", "pure"]
    spent: str
    reserved: str
    spent_pure: str | None
    reserved_pure: str | None
    spent_epsilon: float
    reserved_epsilon: float
    queries_asked: int
    updates_used: int
    opened_at: str
    asked_at: str | None
    closed_at: str | None


class LedgerView(Reply):
    """Exact amounts at the ledger's Renyi order, as decimal strings; ``pure`` has those of the pure sum.

    An entry's ``epsilon`` is its part of the data set's, in the sum that ``regime`` names; its ``pure`` is null where
    not all of its noise is pure. All but ``entries`` are of the whole ledger, on each
    of its pages; ``next`` is the address of the next page, if any.
    """

    dataset: str
    order: str
    budget: str
    spent: str
    reserved: str
    remaining: str
    sum: str
    pure: dict[str, str]
    entries: list[dict[str, Any]]
    next: str = ""


class ExpectationView(Reply):
    """What the foretold errors of a plan rest on.

    ``units`` are those of each kind of question. ``tenth`` has the errors of the tenth question, where the number of
    questions was left open and later ones get less; else it is null. ``records`` is the number for which errors of
    means, medians and shares are told. ``words`` say what was assumed.
    """

    units: dict[str, str]
    tenth: dict[str, float | dict[str, float | None] | None] | None
    records: float | None
    words: list[str]


class QuestionsWithin(Reply):
    """How many questions of the accuracy that was asked for the share pays for: ``counts`` different counts at least,
    each measured by itself, whose intervals reach ``within`` at most, or so many cuts of a graph or matrix;
    ``whole_table`` tells whether it pays for all cells of the table at once, of which every count is then known so
    well, and is null of graphs and matrices. ``words`` say the same.
    """

    within: float
    confidence: float
    counts: int
    whole_table: bool | None
    words: list[str]


class PlanView(Reply):
    """A session's plan and promises; errors and scales in counts.

    ``error_bound`` holds with probability 1 - beta for all answers until ``max_updates`` are used; in a ``guaranteed``
    plan for all queries. ``update_bound`` is how many updates there can be at worst, whatever is asked, and
    ``bound_status`` what it says or why it is null: ``bound``; ``above-limit``, more than 10^7; ``fact-unknown``, it
    depends on a mass or norm that is not public; ``no-worst-case-bound``, there is none, the plan is best effort only
    (steps ``full`` and ``refit``, the sampled median mechanism). ``step_size`` is the rate of the fixed step that keeps
    this bound, null for steps that have none. ``noise`` is the law of the noise, ``laplace`` or ``gaussian``, whose
    sigma then is ``noise_scale``; ``threshold`` is null where every question is measured. ``regime`` is the sum of the
    budget that ``epsilon`` is a part of; ``reserved_pure`` is null where not all of the noise is pure. A session that
    answers from evidence has noise and price of their own for each measurement, and no ``error_bound`` but by a
    contract: its plan has a ``mode`` and says in ``how`` what that means; ``max_queries`` and ``max_updates`` are null
    where none were declared. Of a contract ``threshold`` is that of the tests, ``noise_scale`` their noise's,
    ``measured_scale`` that of a measurement behind a hit, and ``drift`` how far answers may lie from what was tested;
    the ``error_bound`` is that of counts, and each answer tells its own.

    Plans that are asked for, and that of a session in the reply which opens it, foretell the errors of sessions that
    answer from evidence in ``expected_standard_errors``, by kind of question: of counts under conditions on
    ``one_attribute`` and on ``two_attributes``, half the values of each, of a ``cell`` of a marginal, of a ``share``,
    and by attribute of the ``mean``, ``sum`` and ``median`` of all records; of graphs and matrices of a ``cut``. A plan
    knows public facts alone, an opened session what was measured too. ``expectation`` says what they rest on. Both are
    null where nothing is bought, and ``questions_within`` is where no accuracy (``within``) was asked for.
    """

    noise: str | None
    noise_scale: float | None
    threshold: float | None
    error_bound: float | None
    beta: float
    max_updates: int | None
    max_queries: int | None
    guaranteed: bool
    update_bound: int | None
    bound_status: BoundStatus
    step_size: float | None
    epsilon: float
    epsilon_alone: float
    delta: float
    calibration: str
    regime: Literal["renyi", "pure"]
    reserved: str
    reserved_pure: str | None
    mode: str | None = None
    how: str | None = None
    measured_scale: float | None = None
    drift: float | None = None
    expected_standard_errors: dict[str, float | dict[str, float | None] | None] | None = None
    expectation: ExpectationView | None = None
    questions_within: QuestionsWithin | None = None


class PlanOutcome(Reply):
    """A mechanism with its plan, or with the problem that kept it from one.

    ``certain_error`` is the error that the plan's noise and number of updates keep for all queries for certain: the
    error bound where the updates last in the worst case, else that of a threshold so wide that they would; null where
    there is no worst-case bound.
    """

    mechanism: dict[str, Any]
    plan: PlanView | None = None
    certain_error: float | None = None
    problem: ProblemDocument | None = None


class GaussianView(Reply):
    """Independent Gaussian noise on every answer, in counts: the line that a mechanism has to beat.

    ``better``: its error bound, which holds for all queries, is below the (best) plan's, or there is no plan; where the
    plan promises no bound, its sigma is below the largest error that is foretold of a count or a cut.
    """

    sigma: float
    error_bound: float
    better: bool


class PlanReply(PlanView):
    """A plan with the line it has to beat, which is null of a session of epsilon 0.

    ``note`` says that an analyst may not open what is planned where he has no grant and the data set takes one; else it
    is null.
    """

    independent_gaussian: GaussianView | None
    advice: str
    note: str | None


class PointView(Reply):
    """A session of a sweep, with what is foretold and promised of it as its plan tells it, or the problem that keeps it
    from a plan. ``max_queries`` is null where none is declared."""

    epsilon: float
    max_queries: int | None
    mechanism: dict[str, Any] | None = None
    error_bound: float | None = None
    expected_standard_errors: dict[str, float | dict[str, float | None] | None] | None = None
    independent_gaussian: GaussianView | None = None
    problem: ProblemDocument | None = None


class SweepView(Reply):
    """The points of a sweep, for each epsilon every number of questions. ``note`` is as of the plan of a session."""

    points: list[PointView]
    note: str | None


class ComparisonView(Reply):
    """Plans in the order of the mechanisms; ``best`` is the index of the best one, null where there is no plan.

    The best has the least ``certain_error``; plans without one come last. Among equals the lesser ``update_bound``
    decides, then the lesser ``error_bound``, then the mechanism's words: never the order of the request. ``note`` is as
    of one plan.
    """

    plans: list[PlanOutcome]
    best: int | None
    independent_gaussian: GaussianView
    advice: str
    note: str | None


class SessionView(Reply):
    """A session's public state; what is left is null where there is no limit.

    ``log_size`` is the size of the smallest log that has all of its entries so far, null while the log has not come so
    far. It is there in a session's own state and in the reply to its closing.
    """

    id: str
    dataset: str
    owner: str
    mechanism: dict[str, Any]
    plan: PlanView
    status: Literal["open", "closed"]
    queries_asked: int
    queries_left: int | None
    updates_used: int
    updates_left: int | None
    spent: str
    reserved: str
    spent_pure: str | None
    reserved_pure: str | None
    head_hash: str
    log_size: int | None = None
    dummy: bool | None = None


class _Answered(Reply):
    """The part that all answers have: where it came from, what it cost, its place in the transcript.

    ``error_bound`` holds with probability 1 - beta for all answers of the session together; it is null where nothing is
    promised of all of them. Intervals hold one by one, with probability ``confidence`` each: of kind ``unbiased`` by
    construction for a question that was not chosen by the noise it is answered from, of kind ``model`` as far as the
    data are as the fit takes them to be. ``charged_epsilon`` is what the answer cost, 0 for most. ``note`` is there
    where the declaration clamps the numbers that a statistic is of, or caps the records of a person (the interval is
    that of what was kept), and where counts are known to be 0 as the declaration says that what they count cannot
    occur.
    """

    sequence: int
    source: Literal["hypothesis", "measurement", "cached", "estimate"]
    interval_kind: Literal["unbiased", "model"] | None
    confidence: float | None
    error_bound: float | None
    beta: float
    charged_epsilon: float
    updates_used: int
    updates_left: int | None
    queries_left: int | None
    entry_hash: str
    note: str | None = None
    dummy: bool | None = None
    unverified: bool | None = None
    unverified_left: int | None = None


class AnswerView(_Answered):
    """A released value, how well it is known, and its place in the transcript.

    ``value`` is null where too few records may be left for a statistic to mean anything. ``standard_error`` and
    ``interval`` are null where they are not known, as of a hypothesis that was only ever tested.
    ``unbiased`` is the best linear unbiased estimate beside the value shown, where evidence has one.
    """

    value: float | None
    standard_error: float | None
    interval: list[float] | None
    unbiased: dict[str, float] | None = None


class AxisView(Reply):
    """An attribute of a table and what the cells along it are called, null for no value; ``q`` of several quantiles.

    Of blocks it is ``left`` or ``right``, or ``group`` where only what is within groups was asked; of degrees
    ``degree``.
    """

    attribute: str
    labels: list[int | float | str | None]


class MarginalView(_Answered):
    """A released table of counts, of blocks or degrees of a graph, or of a statistic by groups or at several parts.

    There is a value for each combination of labels, in row-major order: the last of ``axes`` changes first. It is null
    where too few records may be left for a statistic. ``standard_errors`` and ``intervals`` have one item a value, and
    are null, or some of their items, where they are not known.
    """

    axes: list[AxisView]
    values: list[float | None]
    standard_errors: list[float | None] | None
    intervals: list[list[float] | None] | None


class BatchView(Reply):
    """Answers in the order of the queries; one that failed is a problem in its place."""

    answers: list[AnswerView | MarginalView | ProblemDocument]


class SqlRequest(Body):
    """A statement of SQL."""

    refusal = "give statement, and nothing else"

    statement: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": 10_000})]


class SqlQuestion(SqlRequest):
    """A statement of SQL that is asked, and the most that all its answers together may charge of epsilon."""

    refusal = "give statement, a text, where wanted at_most, a number that is not negative, and nothing else"

    at_most: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = None


class ColumnView(Reply):
    """A column of a result: its name, the type of its values, of which any may be null, and what they are."""

    name: str
    type: Literal["integer", "double", "text", "date", "boolean", "double[]"]
    role: Literal["group", "value", "standard_error", "low", "high", "price", "fact"]


class SqlView(Reply):
    """The result of a statement: its columns and rows, the answers that they are made of, and notices."""

    columns: list[ColumnView]
    rows: list[list[Any]]
    answers: list[AnswerView | MarginalView]
    notices: list[str]


class TranslatedView(Reply):
    """What a statement would ask: the questions, and the columns of its result. One that asks nothing has rows."""

    questions: list[dict[str, Any]]
    columns: list[ColumnView]
    notices: list[str]
    rows: list[list[Any]] | None = None
    answers: list[Any] | None = None


class PriceView(Reply):
    """What a question would cost and tell as the session stands, from public things alone.

    ``epsilon`` is what the answer would charge, a part of the session's, 0 where it is free. Where a test decides
    whether anything is charged it is the most that it may be, and ``certain`` is false. ``source`` is where the answer
    would come from; of a test, where it costs that. ``half_width`` is half the width of the narrowest and of the widest
    interval to expect, null where nothing is known of them. ``left`` is what the session would have left of its
    epsilon, ``words`` the question in words.
    """

    epsilon: float
    certain: bool
    source: Literal["hypothesis", "measurement", "cached", "estimate"]
    half_width: list[float] | None
    left: float
    words: str


class PricesView(Reply):
    """Prices in the order of the questions, each as if it came next; of one that would be refused there is the problem
    in its place.
    """

    prices: list[PriceView | ProblemDocument]


class Health(Reply):
    """Whether the service can work."""

    status: str


class Page(BaseModel):
    """Part of a list; ``next`` is where the next part is, absent from the last one."""

    next: str = ""


class LogKey(Reply):
    """The log's name and its public key: in base64, and as the line NAME+HASH+KEY that tools take; and the notes by
    which each key before it vouched for the next.
    """

    origin: str
    algorithm: Literal["Ed25519"]
    public_key: str
    key: str
    previous: list[str]


class Proof(Reply):
    """The hashes of a proof (RFC 6962), in base64."""

    hashes: list[str]


class Connections(Page):
    """Connections by name."""

    items: list[ConnectionView]


class Principals(Page):
    """Principals by name."""

    items: list[PrincipalView]


class Datasets(Page):
    """Data sets by name."""

    items: list[DatasetView]


class Sessions(Page):
    """Sessions in the order they were opened."""

    items: list[SessionView]


class EntryView(Reply):
    """An entry of a session in short: an answer, a round that could not be recorded (``forfeit``), or a measurement of
    a release. ``words`` are the question's, null where it was an array or too long to be kept as it was asked, and of
    what is no answer, as is ``source``.
    """

    sequence: int
    record: Literal["answer", "forfeit", "release"]
    words: str | None
    source: Literal["hypothesis", "measurement", "cached", "estimate"] | None
    charged_epsilon: float
    recorded_at: str


class WholeEntryView(EntryView):
    """The same with the question as it was asked, null where it was an array or too long to be kept, and the answer as
    it was replied then: null where it was asked without an idempotency key, or the session was closed long ago.
    """

    question: dict[str, Any] | None
    answer: AnswerView | MarginalView | None


class Entries(Page):
    """Entries of a session in their order."""

    items: list[EntryView]


class Grants(Page):
    """Who may hold how much of a data set and has spent what, by name of the analyst; or one analyst's own, by name of
    the data set.
    """

    items: list[GrantView]


class Holders(Page):
    """Sessions on a data set in the order they were opened, those of releases too."""

    items: list[HolderView]


class WorkloadPlans(Reply):
    """All ways to have a workload answered, best first: methods of releases, and mechanisms of sessions that are asked
    question by question. Each has a ``plan`` and the errors that are ``expected`` of it (``root_mean_square`` and
    ``largest``, in counts; ``basis`` says whether they are exact, upper bounds, or usually upper bounds), or the
    ``problem`` why there is none. Methods foretell the time that the work takes, about (``expected_seconds``).

    ``numbers`` is how many numbers are asked for, ``best`` the method of a release that is expected to err least.
    ``note`` is as of the plan of a session.
    """

    numbers: int | None
    best: str | None
    methods: list[dict[str, Any]]
    note: str | None


class ReleaseView(Reply):
    """A release: what was asked for, where it stands (``status``: queued, running, done, failed or cancelled; ``step``
    and ``progress`` from 0 to 1 tell how far), what it costs, and about how long the work takes (``expected_seconds``).

    Its session, which has the same id, holds its share and has the transcript. ``result`` tells what came of it when it
    is done, ``problem`` why nothing did.
    """

    id: str
    dataset: str
    owner: str
    method: str
    workload: dict[str, Any]
    options: dict[str, Any]
    status: str
    step: str
    progress: float
    created_at: str
    finished_at: str | None
    cost: dict[str, Any]
    plan: dict[str, Any]
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    links: dict[str, str]
    expected_seconds: float
    why: str | None = None


class Releases(Page):
    """Releases in the order they were asked for."""

    items: list[ReleaseView]


class AuditProgress(Reply):
    """How far an audit is: ``stage`` is copying, lines, books or replay, in this order; ``finding`` what was found not
    to hold by then.
    """

    stage: str
    lines: int
    of_lines: int | None
    sessions: int
    of_sessions: int | None
    finding: dict[str, Any] | None


class AuditInShort(Reply):
    """An audit without its result: of what it is, where it stands (``status``: running, stopping, done, stopped or
    failed), and its verdict when it is done: holds, or does not hold. ``says`` tells that in words.
    """

    id: str
    owner: str
    session: str | None
    all: bool
    status: str
    verdict: str | None
    says: str
    progress: AuditProgress
    created_at: str
    finished_at: str | None
    stopped_by: str | None
    problem: dict[str, Any] | None
    links: dict[str, str]


class AuditView(AuditInShort):
    """An audit, with its ``result`` when it is done: finding, checks, what was not checked, books and sessions."""

    result: dict[str, Any] | None


class Audits(Page):
    """Audits in the order they were asked for."""

    items: list[AuditInShort]


class CostView(Reply):
    """Exact amounts: at the ledger's Renyi order, and as pure epsilon, null where the noise is not pure."""

    renyi: str
    pure: str | None


class MeasurementView(Reply):
    """A measurement: noisy counts of the cells of a marginal, or all cells of a graph or a matrix, released once and
    public for ever.

    ``strategy`` names the attributes, or says which pairs of nodes are cells, and counts the cells; the scale of noise
    of kind ``flips`` is the probability with which each bit was turned over; ``by`` is the session that paid for it.
    ``id`` is the SHA-256 of its record, by which transcripts name it.
    """

    id: str
    strategy: dict[str, Any]
    noise: dict[str, Any]
    cost: CostView
    recorded_at: str
    by: str
    shared: bool


class MeasurementList(Page):
    """Measurements in the order they were made."""

    items: list[MeasurementView]


class ReleasedMeasurement(MeasurementView):
    """A measurement with its values, not clipped, row by row; the standard error is that of each of them.

    Where more than the counts of one marginal were measured at once there are ``parts``, each with these fields, and
    the attribute and power of a moment where it is one, and the weight that it is multiplied by; ``residual`` where
    values sum to zero along each axis, and ``rows`` where they are one for each row of weights on the cells that the
    axes name. Of a graph ``values`` are unbiased values of all cells, at most 65,536 of them as JSON, and ``bits`` what
    was released where bits were; of products with weights they are one for each row (``right`` has the weights), each
    column (``left``), or one.
    """

    axes: list[dict[str, Any]] | None = None
    values: list[float] | None = None
    standard_error: float | None = None
    parts: list[dict[str, Any]] | None = None
    bits: list[int] | None = None
    left: list[float] | None = None
    right: list[float] | None = None
