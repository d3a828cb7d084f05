"""The service's replies as objects. ``raw`` is the whole reply, with the fields that later versions may add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from curator_client.answers import Label
from curator_client.errors import ProtocolError, Refused, refusal
from curator_client.expectations import expectation_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from curator_client.calls import Reply

JSON = Mapping[str, Any]
Role = Literal["admin", "analyst", "auditor"]
Kind = Literal["table", "graph", "bipartite", "matrix", "multiset"]


def need(reply: object, name: str) -> Any:
    """Member ``name`` of a JSON object.

    Raises:
        ProtocolError: when ``reply`` is no object, or has no such member.
    """
    if not isinstance(reply, Mapping) or name not in reply:
        raise ProtocolError(f"the reply has no {name!r}")
    return reply[name]


def amount(value: object) -> Decimal:
    """An exact amount, sent as a JSON number or as a string of digits.

    Raises:
        ProtocolError: when it is neither.
    """
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise ProtocolError("an amount in the reply is not a number") from None


def optional_float(value: Any) -> float | None:
    """A number that may be null."""
    return None if value is None else float(value)


def optional_int(value: Any) -> int | None:
    """A whole number that may be null."""
    return None if value is None else int(value)


class Key(str):
    """A key of somebody who may call the service, which shows it only once. It is the text itself, and knows whose it
    is; ``repr`` does not show it.

    Attributes:
        name: of the principal.
        role: what they may do.
    """

    name: str
    role: Role

    def __repr__(self) -> str:
        return f"<Key of {self.name}>"

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to ``POST /v1/principals`` or ``POST /v1/principals/{name}/key``."""
        key = cls(need(reply, "api_key"))
        key.name, key.role = str(need(reply, "name")), cast(Role, str(need(reply, "role")))
        return key


@dataclass(frozen=True)
class Connection:
    """A connection to a database outside, without its secret. ``type`` is ``postgresql`` or ``spark``."""

    name: str
    type: str
    created_at: str
    created_by: str
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From an item of ``GET /v1/connections``."""
        name, type, at, by = (str(need(reply, word)) for word in ("name", "type", "created_at", "created_by"))
        return cls(name, type, at, by, dict(reply))


@dataclass(frozen=True)
class Principal:
    """Somebody who may call the service, or might until ``revoked_at``."""

    name: str
    role: Role
    created_at: str
    revoked_at: str | None
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From an item of ``GET /v1/principals``."""
        revoked = reply.get("revoked_at")
        return cls(
            str(need(reply, "name")),
            cast(Role, str(need(reply, "role"))),
            str(need(reply, "created_at")),
            None if revoked is None else str(revoked),
            dict(reply),
        )


@dataclass(frozen=True)
class BudgetSum:
    """How much of epsilon is spent, held by open sessions, and left, by one of the two sums of a budget."""

    spent: Decimal
    reserved: Decimal
    left: Decimal

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From a budget, or from one of its sums."""
        names = ("spent_epsilon", "reserved_epsilon", "remaining_epsilon")
        return cls(*(amount(need(reply, name)) for name in names))


@dataclass(frozen=True)
class Grant:
    """What somebody may hold and spend of a data set's epsilon, and what of that is spent, held and left.

    ``epsilon`` is the cap, None without one: then the data set's whole epsilon is. ``available`` is what a
    session could have at most.
    ``epsilon_alone`` is what his answers would keep, with the data set's delta, were they all that is ever computed
    from the data; with those of everybody else they keep the data set's epsilon. ``promises`` says so in words, in the
    reply to a grant that was given. ``renyi`` and ``pure`` are both sums; ``regime`` names the one that is shown.
    """

    dataset: str
    principal: str
    epsilon: Decimal | None
    spent: Decimal
    reserved: Decimal
    left: Decimal
    available: Decimal
    epsilon_alone: Decimal
    regime: str
    renyi: BudgetSum
    pure: BudgetSum
    promises: str | None
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From a list of grants, or the reply to a grant."""
        cap, words = need(reply, "epsilon"), reply.get("promises")
        sums = BudgetSum.parse(reply)
        return cls(
            dataset=str(need(reply, "dataset")),
            principal=str(need(reply, "principal")),
            epsilon=None if cap is None else amount(cap),
            spent=sums.spent,
            reserved=sums.reserved,
            left=sums.left,
            available=amount(need(reply, "available_epsilon")),
            epsilon_alone=amount(need(reply, "epsilon_alone")),
            regime=str(need(reply, "regime")),
            renyi=BudgetSum.parse(need(reply, "renyi")),
            pure=BudgetSum.parse(need(reply, "pure")),
            promises=None if words is None else str(words),
            raw=dict(reply),
        )


@dataclass(frozen=True)
class Holder:
    """A session on a data set as an admin sees it: whose it is, what it holds and has spent, and not what was asked.

    ``spent_epsilon`` and ``reserved_epsilon`` are parts of ``epsilon``, with which it was opened.
    """

    id: str
    dataset: str
    owner: str
    construction: str
    status: str
    epsilon: float
    spent_epsilon: float
    reserved_epsilon: float
    queries_asked: int
    updates_used: int
    opened_at: str
    closed_at: str | None
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From an item of ``GET /v1/datasets/{name}/sessions``."""
        closed = need(reply, "closed_at")
        return cls(
            id=str(need(reply, "id")),
            dataset=str(need(reply, "dataset")),
            owner=str(need(reply, "owner")),
            construction=str(need(reply, "construction")),
            status=str(need(reply, "status")),
            epsilon=float(need(reply, "epsilon")),
            spent_epsilon=float(need(reply, "spent_epsilon")),
            reserved_epsilon=float(need(reply, "reserved_epsilon")),
            queries_asked=int(need(reply, "queries_asked")),
            updates_used=int(need(reply, "updates_used")),
            opened_at=str(need(reply, "opened_at")),
            closed_at=None if closed is None else str(closed),
            raw=dict(reply),
        )


@dataclass(frozen=True)
class Budget:
    """A data set's (epsilon, delta) and how much of epsilon is spent, held by open sessions, and left.

    These are of the ``regime``, that one of the sums ``renyi`` and ``pure`` that has more left; where as much is left
    of both, the one of which less is spent. A session of pure noise may take all that is left of ``pure`` until other
    noise may have been taken: then the data set is ``impure``.
    """

    epsilon: Decimal
    delta: Decimal
    spent: Decimal
    reserved: Decimal
    left: Decimal
    regime: str
    renyi: BudgetSum
    pure: BudgetSum
    impure: bool

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the ``budget`` of a data set's descriptor."""
        return cls(
            epsilon=amount(need(reply, "epsilon")),
            delta=amount(need(reply, "delta")),
            spent=amount(need(reply, "spent_epsilon")),
            reserved=amount(need(reply, "reserved_epsilon")),
            left=amount(need(reply, "remaining_epsilon")),
            regime=str(need(reply, "regime")),
            renyi=BudgetSum.parse(need(reply, "renyi")),
            pure=BudgetSum.parse(need(reply, "pure")),
            impure=bool(need(reply, "impure")),
        )


@dataclass(frozen=True)
class Report:
    """The fate of the records of a table's file. It tells of private data: it is for who registers alone.

    ``attributes`` has for each attribute how many records it dropped, and of the kept ones in how many its value was
    moved to a bound (``clamped``) or ``missing``. A record counts once in ``dropped`` and ``clamped``, and once in each
    attribute that is a reason. ``beyond_cap`` are records of persons who have more than are kept of anybody; of a graph
    whose unit is a node of one side they are edges of nodes that have too many.
    """

    read: int
    kept: int
    dropped: int
    clamped: int
    beyond_cap: int
    attributes: Mapping[str, Mapping[str, int]]

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the ``report`` of a registration."""
        names = ("read", "kept", "dropped", "clamped", "beyond_cap")
        read, kept, dropped, clamped, beyond = (int(need(reply, name)) for name in names)
        return cls(read, kept, dropped, clamped, beyond, dict(need(reply, "attributes")))


@dataclass(frozen=True)
class Attribute:
    """An attribute of a table as it is declared.

    ``labels`` are the values of categories, or the codes; None for numbers and dates. Numbers have ``lower`` and
    ``upper``, and ``edges`` of the bins in which they are counted where nothing else is asked. ``has_mean`` says
    whether it is declared with a grid: then sums, means, variances and quantiles may be asked. ``missing`` says whether
    a record may be without a value. ``raw`` is the declaration, which has the rest.
    """

    name: str
    labels: tuple[Label, ...] | None
    lower: float | None
    upper: float | None
    edges: tuple[Any, ...] | None
    has_mean: bool
    missing: bool
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From an item of a descriptor's ``attributes``."""
        values, size, edges = reply.get("values"), reply.get("size"), reply.get("edges")
        lower, upper = optional_float(reply.get("lower")), optional_float(reply.get("upper"))
        bins = optional_int(reply.get("bins"))
        if edges is None and bins and lower is not None and upper is not None:
            edges = [lower + (upper - lower) * place / bins for place in range(bins + 1)]
        if edges and lower is None:
            lower, upper = float(edges[0]), float(edges[-1])
        labels = values if values is not None else None if size is None else range(int(size))
        return cls(
            name=str(need(reply, "name")),
            labels=None if labels is None else tuple(labels),
            lower=lower,
            upper=upper,
            edges=None if edges is None else tuple(edges),
            has_mean=reply.get("grid") is not None,
            missing=reply.get("missing") is True,
            raw=dict(reply),
        )


@dataclass(frozen=True)
class Described:
    """The public facts of a data set. ``domain`` is what was declared of it, of a table its ``attributes`` by name;
    ``privacy_unit`` is what neighbours differ in; ``records`` how many there are, None where that is not public;
    ``commitment`` the one to its private file, None where it was registered before there were any; ``grant`` what the
    caller may hold of it and what is left of that, None without a grant.
    """

    name: str
    kind: Kind
    description: str
    attributes: Mapping[str, Attribute] = field(repr=False)
    domain: JSON = field(repr=False)
    privacy_unit: str
    records: int | None
    budget: Budget
    status: Literal["registered", "retired"]
    commitment: str | None
    grant: Grant | None
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON, **more: Any) -> Self:
        """From a public descriptor."""
        domain = need(reply, "domain")
        commitment, grant = reply.get("commitment"), reply.get("grant")
        attributes = map(Attribute.parse, need(domain, "attributes") if reply.get("kind") == "table" else ())
        return cls(
            name=str(need(reply, "name")),
            kind=cast(Kind, str(need(reply, "kind"))),
            description=str(reply.get("description") or ""),
            attributes={each.name: each for each in attributes},
            domain=cast(JSON, domain),
            privacy_unit=str(need(reply, "privacy_unit")),
            records=optional_int(reply.get("records")),
            budget=Budget.parse(need(reply, "budget")),
            status=need(reply, "status"),
            commitment=None if commitment is None else str(commitment),
            grant=None if grant is None else Grant.parse(grant),
            raw=dict(reply),
            **more,
        )

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([self._head(), *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)])

    def _repr_html_(self) -> str:
        from curator_client.figures import escaped

        rows = "".join(f"<tr>{''.join(f'<td>{escaped(text)}</td>' for text in row)}</tr>" for row in self._rows())
        told = f"<p>{escaped(self.description)}</p>" if self.description else ""
        return f"<p>{escaped(self._head())}</p>{told}<table><tbody>{rows}</tbody></table>"

    def _head(self) -> str:
        records = "" if self.records is None else f", {self.records:,} records"
        budget = f"epsilon {self.budget.left} of {self.budget.epsilon} left"
        return f"{self.name}: {self.kind}{records}; {self.privacy_unit}; {budget}"

    def _rows(self) -> list[tuple[str, str, str]]:
        """Of a table a row an attribute: its name, its values, and what may be asked of it."""
        return [(each.name, _values(each), "has a mean" if each.has_mean else "") for each in self.attributes.values()]


def _values(attribute: Attribute) -> str:
    """What values an attribute has, in a few words."""
    if attribute.labels is not None:
        told = [str(label) for label in attribute.labels[:8]]
        words = ", ".join([*told, *(["..."] if len(attribute.labels) > len(told) else [])])
    elif attribute.lower is not None:
        words = f"{attribute.lower:g} to {attribute.upper:g}"
    else:
        words = " to ".join(map(str, attribute.raw.get("dates", ())))
    return f"{words}, or no value" if attribute.missing else words


@dataclass(frozen=True)
class Commitment:
    """The commitment to a data set's private file, and the key (64 hexadecimal digits) that shows a file to be it.

    Whoever has the key can test guesses of the file.
    """

    dataset: str
    algorithm: str
    commitment: str
    key: str = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to ``POST /v1/datasets/{name}/commitment``."""
        dataset, algorithm, commitment, key = (
            str(need(reply, name)) for name in ("dataset", "algorithm", "commitment", "key")
        )
        return cls(dataset, algorithm, commitment, key)


@dataclass(frozen=True)
class CheckedProblem:
    """Something that a registration would be refused for, and the attribute and the record, from 1, where it is met."""

    detail: str
    attribute: str | None = None
    row: int | None = None

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From an item of ``problems`` in the reply to ``POST /v1/datasets/check``."""
        return cls(str(need(reply, "detail")), reply.get("attribute"), optional_int(reply.get("row")))


@dataclass(frozen=True)
class Check:
    """The findings of a check, and ``spec``, the declaration with what was left out of it.

    A drafted declaration was made by reading the private file: it is for the admin's eyes until what was guessed is
    replaced by what is known without the data. ``report`` tells what would become of the records, None where that is
    not known.
    """

    spec: JSON = field(repr=False)
    problems: tuple[CheckedProblem, ...]
    report: Report | None = field(repr=False)
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to ``POST /v1/datasets/check``."""
        report = need(reply, "report")
        return cls(
            cast(JSON, need(reply, "spec")),
            tuple(CheckedProblem.parse(item) for item in need(reply, "problems")),
            None if report is None else Report.parse(report),
            tuple(map(str, need(reply, "warnings"))),
            tuple(map(str, need(reply, "notes"))),
            dict(reply),
        )


@dataclass(frozen=True)
class Movement:
    """A movement of a data set's budget: ``reserve``, ``charge``, ``return`` or ``forfeit``, by which session, and what
    part of the data set's epsilon it is. ``raw`` has the exact amounts.
    """

    number: int
    kind: str
    session: str
    epsilon: Decimal
    recorded_at: str
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, number: int, reply: JSON) -> Self:
        """From an entry of ``GET /v1/datasets/{name}/ledger``, the first of which has number 1."""
        session = need(reply, "session")
        return cls(
            number,
            str(need(reply, "kind")),
            "" if session is None else str(session),
            amount(need(reply, "epsilon")),
            str(need(reply, "recorded_at")),
            dict(reply),
        )


class Ledger(list[Movement]):
    """The movements of a data set's budget, from the first. ``raw`` is the last page, with the entries of all pages: it
    has what they come to, exactly.
    """

    raw: JSON

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From ``GET /v1/datasets/{name}/ledger``."""
        entries = reply.get("entries")
        if not isinstance(entries, list):
            raise ProtocolError("the reply has no entries")
        ledger = cls(Movement.parse(number, entry) for number, entry in enumerate(entries, start=1))
        ledger.raw = dict(reply)
        return ledger


@dataclass(frozen=True)
class Plan:
    """A session's plan: its noise, its bounds and its cost. Errors and scales are in counts.

    What a plan does not have is None: ``threshold`` where every question is measured; noise, bound and scales of a
    session that answers from evidence, and its numbers of queries and updates where none was declared. Such a plan has
    a ``mode``, and says in ``how`` what that means.

    ``update_bound`` is the worst-case number of updates; ``bound_status`` says which bound it is, or why there is none.
    ``regime`` is the sum of the budget that ``epsilon`` is a part of.

    A plan that was asked for, and that of a session which was opened just now, foretells the standard errors of answers
    in ``expected_standard_errors``, by kind of question, for ``mean``, ``sum`` and ``median`` by attribute; what they
    rest on is in ``expectation``, and in ``questions_within`` how many questions of a wanted accuracy it pays for. They
    are None elsewhere. Printed, a plan shows them as a table. ``mechanism`` is what answers, in full; ``advice`` says
    in a plan that was asked for what is to be weighed against it.
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
    bound_status: str | None
    step_size: float | None
    epsilon: Decimal
    epsilon_alone: Decimal
    delta: Decimal
    calibration: str
    regime: str
    mode: str | None
    how: str | None
    expected_standard_errors: JSON | None
    expectation: JSON | None
    questions_within: JSON | None
    mechanism: JSON | None
    advice: str | None
    raw: JSON = field(repr=False)

    def __str__(self) -> str:
        questions = "any number of" if self.max_queries is None else f"{self.max_queries:,}"
        lines = [f"Plan: {questions} questions for epsilon {self.epsilon:f}", self.how or "", self.expected]
        return "\n".join(line for line in lines if line)

    @property
    def expected(self) -> str:
        """What is expected of answers, as a table and sentences 80 columns wide; empty where nothing is foretold."""
        return expectation_text(self.raw)

    @classmethod
    def parse(cls, reply: JSON, mechanism: JSON | None = None) -> Self:
        """From ``POST /v1/plans``, or the ``plan`` of a session, beside which the mechanism stands."""
        return cls(
            noise=need(reply, "noise"),
            noise_scale=optional_float(need(reply, "noise_scale")),
            threshold=optional_float(need(reply, "threshold")),
            error_bound=optional_float(need(reply, "error_bound")),
            beta=float(need(reply, "beta")),
            max_updates=optional_int(need(reply, "max_updates")),
            max_queries=optional_int(need(reply, "max_queries")),
            guaranteed=bool(need(reply, "guaranteed")),
            update_bound=optional_int(reply.get("update_bound")),
            bound_status=reply.get("bound_status"),
            step_size=optional_float(need(reply, "step_size")),
            epsilon=amount(need(reply, "epsilon")),
            epsilon_alone=amount(need(reply, "epsilon_alone")),
            delta=amount(need(reply, "delta")),
            calibration=str(need(reply, "calibration")),
            regime=str(need(reply, "regime")),
            mode=reply.get("mode"),
            how=reply.get("how"),
            expected_standard_errors=reply.get("expected_standard_errors"),
            expectation=reply.get("expectation"),
            questions_within=reply.get("questions_within"),
            mechanism=reply.get("mechanism") or mechanism,
            advice=reply.get("advice"),
            raw=dict(reply),
        )


@dataclass(frozen=True)
class PlanOutcome:
    """A mechanism in full, with the plan it would have, or the refusal where it has none.

    ``certain_error`` is the error, in counts, that the plan's noise and number of updates keep for all queries whatever
    is asked; None where nothing is promised.
    """

    mechanism: JSON
    plan: Plan | None
    problem: Refused | None
    certain_error: float | None = None

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From an item of ``plans`` in the reply to ``POST /v1/plans``."""
        mechanism, problem = cast(JSON, need(reply, "mechanism")), reply.get("problem")
        if problem is None:
            certain = optional_float(reply.get("certain_error"))
            return cls(mechanism, Plan.parse(need(reply, "plan")), None, certain)
        return cls(mechanism, None, refusal(problem, int(problem.get("status", 0))))


@dataclass(frozen=True)
class Comparison:
    """Plans in the order of the mechanisms asked for, and the noise on every answer that they have to beat.

    ``best`` is the index of the plan that keeps the least error for all queries for certain, None where there is no
    plan; ``gaussian_error_bound`` what independent Gaussian noise on each answer would keep, in counts.
    """

    outcomes: tuple[PlanOutcome, ...]
    best: int | None
    gaussian_error_bound: float
    advice: str
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From the reply to ``POST /v1/plans`` with ``mechanisms``."""
        plans = need(reply, "plans")
        if not isinstance(plans, list):
            raise ProtocolError("plans is not a list")
        return cls(
            outcomes=tuple(PlanOutcome.parse(item) for item in plans),
            best=optional_int(need(reply, "best")),
            gaussian_error_bound=float(need(need(reply, "independent_gaussian"), "error_bound")),
            advice=str(need(reply, "advice")),
            raw=dict(reply),
        )


@dataclass(frozen=True)
class SessionState:
    """Where a session stands. Counters are None in a reply that does not carry them.

    ``spent`` and ``reserved`` are exact, at the ledger's order; ``spent_epsilon`` and ``reserved_epsilon`` are parts of
    the epsilon that the session was opened with. ``log_size`` is the size of the smallest log that has all of the
    session's entries, None where the log has not come so far, or the reply does not tell. ``dummy`` tells of a session
    on made-up records.
    """

    id: str
    dataset: str
    status: str
    plan: Plan
    mechanism: JSON
    queries_asked: int | None
    queries_left: int | None
    updates_used: int | None
    updates_left: int | None
    spent: Decimal | None
    reserved: Decimal | None
    sequence: int | None
    head_hash: str | None
    owner: str | None
    spent_epsilon: float | None
    reserved_epsilon: float | None
    log_size: int | None
    dummy: bool
    raw: JSON = field(repr=False)

    @classmethod
    def parse(cls, reply: JSON) -> Self:
        """From any reply that describes a session."""
        spent, reserved, head = reply.get("spent"), reply.get("reserved"), reply.get("head_hash")
        owner = reply.get("owner")
        return cls(
            id=str(need(reply, "id")),
            dataset=str(need(reply, "dataset")),
            status=str(need(reply, "status")),
            plan=Plan.parse(need(reply, "plan"), need(reply, "mechanism")),
            mechanism=cast(JSON, need(reply, "mechanism")),
            queries_asked=optional_int(reply.get("queries_asked")),
            queries_left=optional_int(reply.get("queries_left")),
            updates_used=optional_int(reply.get("updates_used")),
            updates_left=optional_int(reply.get("updates_left")),
            spent=None if spent is None else amount(spent),
            reserved=None if reserved is None else amount(reserved),
            sequence=optional_int(reply.get("sequence")),
            head_hash=None if head is None else str(head),
            owner=None if owner is None else str(owner),
            spent_epsilon=optional_float(reply.get("spent_epsilon")),
            reserved_epsilon=optional_float(reply.get("reserved_epsilon")),
            log_size=optional_int(reply.get("log_size")),
            dummy=reply.get("dummy") is True,
            raw=dict(reply),
        )


@dataclass(frozen=True)
class Hypothesis:
    """The public hypothesis, in the shape of the data set's space, and the number of updates it stands at."""

    array: NDArray[np.float64]
    updates: int | None

    @classmethod
    def parse(cls, array: NDArray[np.float64], reply: Reply) -> Self:
        """From the array of a reply, and its header."""
        updates = reply.headers.get("curator-updates", "")
        return cls(array, int(updates) if updates.isdigit() else None)
