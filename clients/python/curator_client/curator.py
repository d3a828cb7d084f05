"""Every route of the contract as a method: :class:`Curator` has those of the service, :class:`Session` of a session."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, Unpack, overload
from urllib.parse import quote, urlencode

from curator_client.calls import MOST_DATA, MOST_TRANSCRIPT, SMALL, Call, Reply
from curator_client.errors import NotVerified, ProtocolError, Refused, refusal
from curator_client.extras import server
from curator_client.log import LogFolder
from curator_client.models import (
    JSON,
    Check,
    Commitment,
    Comparison,
    Dataset,
    Grant,
    Holder,
    Hypothesis,
    Ledger,
    Member,
    Plan,
    Principal,
    SessionState,
    need,
)
from curator_client.queries import Bins, Dense, Groups, QueryLike, asks_table, blocks, degrees, marginal, statistic
from curator_client.releases import ARROW, Release, ReleaseState, WorkloadPlan, arrow_table
from curator_client.replies import Answer, Marginal, parse_answer
from curator_client.seen import SeenEntries, SeenLog

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from curator_client._http import Transport

NPY = "application/x-npy"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
#: What may be registered: a file, an open file's bytes, or an array of counts.
Data: TypeAlias = "Path | str | bytes | np.ndarray[Any, Any]"
#: Items of a page of a list.
PAGE = 1000
#: An amount: an int, a float or a Decimal.
Number = Any


class Wanted(TypedDict, total=False):
    """The wanted accuracy of an answer, as for :meth:`Session.ask`."""

    within: float | None
    confidence: float | None
    adaptive: bool
    key: str | None


def _segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _json_call(method: str, path: str, body: object = None, *, key: str | None = None) -> Call:
    if body is None:
        return Call(method, path, key=key)
    content = json.dumps(body, allow_nan=False, default=_number).encode()
    return Call(method, path, {"Content-Type": "application/json"}, lambda: {"content": content}, key)


def _number(value: object) -> object:
    """Decimals as JSON numbers, and NumPy's values as Python's.

    Raises:
        TypeError: for anything else.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value)  # type: ignore[arg-type]


def _list(page: JSON, name: str) -> list[Any]:
    items = need(page, name)
    if not isinstance(items, list):
        raise ProtocolError(f"{name} is not a list")
    return items


def _form(spec: str | None, data: Data, filename: str | None, files: ExitStack) -> Callable[[], dict[str, Any]]:
    """The form of an upload, made anew for each try; ``files`` closes what it opens.

    Raises:
        ValueError: for bytes without a filename.
    """
    if not isinstance(data, Path | str | bytes):
        import numpy as np

        buffer = io.BytesIO()
        np.save(buffer, data, allow_pickle=False)
        data, filename = buffer.getvalue(), filename or "data.npy"
    if isinstance(data, bytes) and filename is None:
        raise ValueError("filename is needed with bytes: its ending tells the format")
    fields = {} if spec is None else {"spec": spec}

    def content() -> dict[str, Any]:
        if isinstance(data, bytes):
            return {"data": fields, "files": {"data": (filename, data)}}
        path = Path(os.fspath(data))
        return {"data": fields, "files": {"data": (filename or path.name, files.enter_context(path.open("rb")))}}

    return content


def _new_key() -> str:
    return str(uuid.uuid4())


class Curator:
    """The service, called with one key.

    Calls that fail on the way are tried again where that is safe: openings, queries, batches and closings carry an
    ``Idempotency-Key``, so that a repeat gets the first reply and charges nothing more. Threads that ask in one session
    must not share a client: the order of queries matters there.

    Args:
        base_url: address of the service, without ``/v1``.
        api_key: the caller's key; None for the routes that need none.
        timeout: seconds that one try may take.
        retry_for: seconds for which a call is tried again.

    Raises:
        Refused: by every method, when the service refuses.
        Unreachable: by every method, when no reply comes.
        ProtocolError: by every method, when the reply is not one of the contract.
    """

    def __init__(
        self, base_url: str, api_key: str | None = None, *, timeout: float = 60.0, retry_for: float = 60.0
    ) -> None:
        # Imported here: `import curator_client` is to be quick, for those too who ask nothing.
        from curator_client._http import Transport

        self._transport = Transport(base_url, api_key, timeout=timeout, retry_for=retry_for)
        self._seen_log = SeenLog(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the service; its sessions stay open."""
        self._transport.close()

    # Principals

    def add_principal(self, name: str, role: str) -> Principal:
        """Add somebody who may call, as admin, analyst or auditor. The key is in this reply alone."""
        return Principal.parse(self._transport.json(_json_call("POST", "/v1/principals", {"name": name, "role": role})))

    def principals(self) -> list[Member]:
        """Everybody who may call or ever might, without keys."""
        return [Member.parse(item) for item in self._items("/v1/principals")]

    def rotate_key(self, name: str) -> Principal:
        """Replace a principal's key, also a revoked one. The new key is in this reply alone."""
        return Principal.parse(self._transport.json(Call("POST", f"/v1/principals/{_segment(name)}/key")))

    def revoke_principal(self, name: str) -> None:
        """Revoke a principal's key. Nobody else ever gets the name."""
        self._transport.send(Call("DELETE", f"/v1/principals/{_segment(name)}"))

    # Data sets

    def register(self, spec: JSON, data: Data, *, filename: str | None = None) -> Dataset:
        """Register a data set: its declaration and its private data.

        Args:
            spec: the declaration, as the contract has it.
            data: a path; the bytes of a file, with ``filename`` telling the format by its ending; or an array
                of counts, sent as ``.npy``.
            filename: the name that tells the format; that of the path where none is given.

        Raises:
            ValueError: for bytes without a filename.
        """
        with ExitStack() as files:
            content = _form(json.dumps(spec, allow_nan=False, default=_number), data, filename, files)
            return Dataset.parse(self._transport.json(Call("POST", "/v1/datasets", content=content)))

    def check(
        self, data: Data, spec: JSON | str | None = None, *, filename: str | None = None, table: str | None = None
    ) -> Check:
        """Check a file as a registration would, and tell all that is wrong; nothing is registered, kept or charged.

        Args:
            data: as for :meth:`register`.
            spec: the declaration, as far as it is known: what it leaves out is drafted from the file, everything where
                it is None. As text it may be YAML, or a SmartNoise or CSVW document.
            filename: as for :meth:`register`.
            table: which table of a document of several.

        Raises:
            ValueError: for bytes without a filename.
        """
        if spec is not None and not isinstance(spec, str):
            spec = json.dumps(spec, allow_nan=False, default=_number)
        path = "/v1/datasets/check" + ("" if table is None else "?" + urlencode({"table": table}))
        with ExitStack() as files:
            # A check changes nothing and may be repeated. The key tells the transport so; the service ignores it.
            call = Call("POST", path, content=_form(spec, data, filename, files), key=_new_key())
            return Check.parse(self._transport.json(call))

    def datasets(self) -> list[Dataset]:
        """Public descriptors of all data sets."""
        return [Dataset.parse(item) for item in self._items("/v1/datasets")]

    def dataset(self, name: str) -> Dataset:
        """The public descriptor of one data set."""
        return Dataset.parse(self._transport.json(Call("GET", f"/v1/datasets/{_segment(name)}")))

    def grant(self, dataset: str, principal: str, epsilon: Number) -> Grant:
        """Cap an analyst's share of a data set's epsilon. Where access is by grant, this also gives access."""
        path = f"/v1/datasets/{_segment(dataset)}/grants/{_segment(principal)}"
        return Grant.parse(self._transport.json(_json_call("PUT", path, {"epsilon": epsilon})))

    def grants(self, dataset: str | None = None) -> list[Grant]:
        """What everybody may hold of a data set, holds and has spent; of the caller alone, on all data sets, where none
        is named.
        """
        path = "/v1/grants" if dataset is None else f"/v1/datasets/{_segment(dataset)}/grants"
        return [Grant.parse(item) for item in self._items(path)]

    def holders(self, dataset: str) -> list[Holder]:
        """All sessions on a data set, those of releases too: whose they are and what they cost, not what was asked."""
        return [Holder.parse(item) for item in self._items(f"/v1/datasets/{_segment(dataset)}/sessions")]

    def ledger(self, dataset: str) -> Ledger:
        """A data set's ledger, with all its entries."""
        entries: list[Any] = []
        for page in self._pages(f"/v1/datasets/{_segment(dataset)}/ledger"):
            entries += _list(page, "entries")
        return Ledger.parse({**page, "entries": entries})

    def measurements(self, dataset: str) -> list[JSON]:
        """All measurements of a data set in the order of recording, without values."""
        return self._items(f"/v1/datasets/{_segment(dataset)}/measurements")

    def measurement(self, dataset: str, id: str) -> JSON:
        """A measurement with its values, as :meth:`measurements` has its ``id``."""
        path = f"/v1/datasets/{_segment(dataset)}/measurements/{_segment(id)}"
        return dict(self._transport.json(Call("GET", path)))

    def dummy(self, dataset: str, *, records: int = 1000, seed: int = 0) -> pa.Table:
        """Made-up records like those of a data set, drawn from its declaration alone: the same for the same seed."""
        return arrow_table(self._dummy(dataset, records, seed, ARROW))

    def save_dummy(self, dataset: str, path: Path | str, *, records: int = 1000, seed: int = 0) -> Path:
        """Write made-up records to ``path`` as CSV (Parquet or ``.arrow`` by the ending)."""
        target = Path(path)
        accept = {".parquet": PARQUET, ".arrow": ARROW}.get(target.suffix, CSV)
        target.write_bytes(self._dummy(dataset, records, seed, accept))
        return target

    def _dummy(self, dataset: str, records: int, seed: int, accept: str) -> bytes:
        path = f"/v1/datasets/{_segment(dataset)}/dummy?{urlencode({'records': records, 'seed': seed})}"
        return self._transport.send(Call("GET", path, {"Accept": accept}, most=MOST_DATA)).content

    def reveal(self, dataset: str) -> Commitment:
        """The commitment to a data set's private file, with the key that opens it: for an admin, and the log says so.

        Not after the data set is retired: the key is destroyed with the file.
        """
        # It changes nothing to ask again. The key tells the transport so; the service ignores it.
        call = Call("POST", f"/v1/datasets/{_segment(dataset)}/commitment", key=_new_key())
        return Commitment.parse(self._transport.json(call))

    def retire(self, dataset: str) -> None:
        """Destroy a data set's private file; its public records stay, its name is never used again."""
        self._transport.send(Call("DELETE", f"/v1/datasets/{_segment(dataset)}"))

    # Plans and sessions

    def plan(
        self,
        dataset: str,
        mechanism: JSON | None = None,
        *,
        epsilon: Number,
        max_queries: int | None = None,
        **options: Any,
    ) -> Plan:
        """Plan a session: its promises and costs; charges nothing. Arguments as for :meth:`open_session`."""
        # A plan changes nothing and may be repeated. The key tells the transport so; the service ignores it.
        body = _opening(dataset, mechanism, epsilon, max_queries, options)
        return Plan.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def compare(
        self, dataset: str, mechanisms: Sequence[JSON], *, epsilon: Number, max_queries: int, **options: Any
    ) -> Comparison:
        """The plans of several mechanisms for one task, side by side; charges nothing.

        ``options`` as for :meth:`open_session`. Where a mechanism has no plan, its outcome has the refusal.
        """
        body = _opening(dataset, None, epsilon, max_queries, options)
        body["mechanisms"] = [dict(mechanism) for mechanism in mechanisms]
        return Comparison.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def open_session(
        self,
        dataset: str,
        mechanism: JSON | None = None,
        *,
        epsilon: Number,
        max_queries: int | None = None,
        key: str | None = None,
        **options: Any,
    ) -> Session:
        """Open a session, reserving ``epsilon`` of the data set's epsilon for it.

        Args:
            dataset: name of the data set.
            mechanism: such as ``{"construction": "mw"}`` or ``{"construction": "md", "potential": "lp", "p": 1.5}``;
                the service chooses where it is left out.
            epsilon: the share of the data set's epsilon that the session may spend.
            max_queries: the most queries that the session answers; its bound holds for all of them together. A session
                that answers from evidence needs no such number, and spends better if it has one.
            key: Idempotency-Key, for a caller who wants to repeat the call from another process; a new one by default.
            **options: ``beta``, ``max_updates``, ``calibration``, ``release``, ``within``, ``confidence``, ``start``,
                ``share``, ``contract``, ``dummy``, as in the API's documents.
        """
        call = _json_call(
            "POST", "/v1/sessions", _opening(dataset, mechanism, epsilon, max_queries, options), key=key or _new_key()
        )
        return Session(self._transport, self._seen_log, SessionState.parse(self._transport.json(call)))

    def session(self, id: str) -> Session:
        """An existing session."""
        return Session(
            self._transport, self._seen_log, SessionState.parse(self._transport.json(Call("GET", _session_path(id))))
        )

    def sessions(self) -> list[SessionState]:
        """The sessions the caller may see."""
        return [SessionState.parse(item) for item in self._items("/v1/sessions")]

    # Releases

    def release(
        self,
        dataset: str,
        *,
        workload: JSON,
        epsilon: Number,
        method: str = "auto",
        key: str | None = None,
        **options: Any,
    ) -> Release:
        """Ask for a release of a workload that is known in advance: its share is reserved, and the work queued.

        Args:
            dataset: name of the data set.
            workload: such as ``{"marginals": 3}``, ``{"ranges": "age"}``, ``{"queries": [...]}`` or
                ``{"cuts": "all"}``.
            epsilon: the share of the data set's epsilon that it may spend.
            method: such as ``gaussian`` or ``histogram``; the service chooses by default.
            key: Idempotency-Key, as for :meth:`open_session`.
            **options: ``start``, ``share``, and what belongs to a method, as in the API's documents.
        """
        body = {"dataset": dataset, "workload": dict(workload), "epsilon": epsilon, "method": method}
        body |= {name: value for name, value in options.items() if value is not None}
        call = _json_call("POST", "/v1/releases", body, key=key or _new_key())
        return Release(self._transport, ReleaseState.parse(self._transport.json(call)))

    def publish(
        self,
        dataset: str,
        *,
        tables: Sequence[Mapping[str, Any]] | None = None,
        session: str | None = None,
        epsilon: Number = 0,
        key: str | None = None,
        **options: Any,
    ) -> Release:
        """Ask for a publication: tables of whole numbers that add up to one another, from all that was measured.

        Args:
            dataset: name of the data set.
            tables: questions for counts, such as :func:`marginal` makes them; or leave them out and give ``session``.
            session: id of a session of yours: the tables are what it was asked for.
            epsilon: what may be spent to measure for it first; by default nothing.
            key: Idempotency-Key, as for :meth:`open_session`.
            **options: ``start``, ``share`` and ``within``, as in the API's documents.

        Raises:
            ValueError: unless one of ``tables`` and ``session`` is given.
        """
        if (tables is None) == (session is None):
            raise ValueError("give one of tables, session")
        asked = {"session": session} if tables is None else [dict(table) for table in tables]
        body = {"dataset": dataset, "method": "publication", "tables": asked, "epsilon": epsilon}
        body |= {name: value for name, value in options.items() if value is not None}
        call = _json_call("POST", "/v1/releases", body, key=key or _new_key())
        return Release(self._transport, ReleaseState.parse(self._transport.json(call)))

    def plan_release(self, dataset: str, *, workload: JSON, epsilon: Number, **options: Any) -> WorkloadPlan:
        """All ways to have a workload answered with a share, best first; charges nothing.

        Args:
            dataset: name of the data set.
            workload: as of :meth:`release`.
            epsilon: the share of the data set's epsilon.
            **options: as of :meth:`release`.
        """
        body = {"dataset": dataset, "workload": dict(workload), "epsilon": epsilon}
        body |= {name: value for name, value in options.items() if value is not None}
        return WorkloadPlan.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def existing_release(self, id: str) -> Release:
        """A release that was asked for before."""
        call = Call("GET", f"/v1/releases/{_segment(id)}")
        return Release(self._transport, ReleaseState.parse(self._transport.json(call)))

    def releases(self) -> list[ReleaseState]:
        """The releases the caller may see, in the order they were asked for."""
        return [ReleaseState.parse(item) for item in self._items("/v1/releases")]

    # The service itself

    def log_key(self) -> str:
        """The key that the log is signed with, NAME+HASH+KEY."""
        return str(need(self._transport.json(Call("GET", "/v1/log/key", most=SMALL)), "key"))

    def log_key_statements(self) -> list[bytes]:
        """The signed notes by which each key of the log vouched for the next.

        Raises:
            ProtocolError: when they are no texts.
        """
        try:
            return [
                str(note).encode() for note in self._transport.json(Call("GET", "/v1/log/key", most=SMALL))["previous"]
            ]
        except (KeyError, TypeError):
            raise ProtocolError("the log's key comes with a list of notes about earlier ones") from None

    def log_checkpoint(self, witnesses: int | None = None, keys: Sequence[str] = ()) -> bytes:
        """The signed checkpoint of the log as it is now; or the newest one that witnesses have cosigned.

        Args:
            witnesses: how many of them, at least; None for the newest of all.
            keys: of those that count, each NAME+HASH+KEY; all that the service knows where none is named.

        Raises:
            Refused: ``not-found`` when so many have cosigned none.
        """
        asked = [] if witnesses is None else [("witnesses", str(witnesses)), *(("witness", key) for key in keys)]
        path = "/v1/log/checkpoint" + (f"?{urlencode(asked)}" if asked else "")
        return self._transport.send(Call("GET", path, most=SMALL)).content

    def log_cosign(self, key: str, note: bytes) -> None:
        """Add a checkpoint that a witness has cosigned.

        Args:
            key: the witness', NAME+HASH+KEY: the same as ever.
            note: the log's own with the cosignature.
        """
        path = f"/v1/log/cosignatures?{urlencode({'witness': key})}"
        self._transport.send(Call("POST", path, {"Content-Type": "text/plain"}, lambda: {"content": note}))

    def forget_witness(self, name: str) -> None:
        """Forget the witness key of a principal, and what it has cosigned. For administrators."""
        self._transport.send(Call("DELETE", f"/v1/log/witnesses/{_segment(name)}"))

    def log_entries(self, start: int, end: int) -> list[bytes]:
        """Lines of the log from one number to another, both among them: the first ones, as many as a page has.

        Raises:
            ProtocolError: when there is none, or more than were asked for or a page may have.
        """
        reply = self._transport.send(Call("GET", f"/v1/log/entries?start={start}&end={end}"))
        count = reply.content.count(b"\n")
        if not reply.content.endswith(b"\n") or not 0 < count <= min(end + 1 - start, PAGE):
            raise ProtocolError("a page of the log has no lines, or others than were asked for")
        return reply.content[:-1].split(b"\n")

    def log_consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that the log of ``second`` entries begins with that of ``first``.

        Raises:
            ProtocolError: when its hashes are not base64.
        """
        path = f"/v1/log/proof/consistency?first={first}&second={second}"
        try:
            hashes = self._transport.json(Call("GET", path, most=SMALL))["hashes"]
            return [base64.b64decode(each, validate=True) for each in hashes]
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("a proof is a list of hashes in base64") from None

    def transcript(self, id: str, path: Path | str, *, most_bytes: int = MOST_TRANSCRIPT) -> Path:
        """Download the transcript of a session or a release (NDJSON) to ``path``, which appears only once it is whole.
        An auditor may read any.

        Raises:
            Refused: ``not-found`` when there is none that the caller may read.
            ProtocolError: when it has more than ``most_bytes``.
        """
        target = Path(path)
        self._transport.download(Call("GET", f"/v1/sessions/{_segment(id)}/transcript", most=most_bytes), target)
        return target

    def healthy(self) -> bool:
        """Whether the service is alive."""
        return self._says_yes("/healthz")

    def ready(self) -> bool:
        """Whether the service is ready to answer."""
        return self._says_yes("/readyz")

    def metrics(self) -> str:
        """The service's metrics, in Prometheus' text format."""
        return self._transport.send(Call("GET", "/metrics")).text

    def _items(self, path: str) -> list[Any]:
        """The items of all pages of a list."""
        return [item for page in self._pages(path) for item in _list(page, "items")]

    def _pages(self, path: str) -> Iterator[JSON]:
        """The pages of a list, at least one."""
        following: Any = f"{path}?limit={PAGE}"
        while following is not None:
            page = self._transport.json(Call("GET", following))
            if not isinstance(page, dict):
                raise ProtocolError("the reply is no page of a list")
            yield page
            following = page.get("next")
            # The next request has the key in it: it must not go to another address.
            if following is not None and not (isinstance(following, str) and following.startswith(f"{path}?")):
                raise ProtocolError("the next page is of something else")

    def _says_yes(self, path: str) -> bool:
        try:
            self._transport.send(Call("GET", path))
        except Refused:
            return False
        return True


def _opening(
    dataset: str, mechanism: JSON | None, epsilon: Number, max_queries: int | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a session or plan, without what is None: the service has defaults for that."""
    given = {
        "mechanism": None if mechanism is None else dict(mechanism),
        "epsilon": epsilon,
        "max_queries": max_queries,
        **options,
    }
    return {"dataset": dataset, **{name: value for name, value in given.items() if value is not None}}


def _wanted(within: float | None, confidence: float | None, adaptive: bool) -> JSON:
    """The wanted accuracy that a query names, without what is left to the session."""
    given = {"within": within, "confidence": confidence, "adaptive": adaptive or None}
    return {name: value for name, value in given.items() if value is not None}


def _session_path(id: str) -> str:
    return f"/v1/sessions/{_segment(id)}"


class Session:
    """One session. As a context manager it is closed at the end, which returns what it did not spend.

    Attributes:
        opened: the session's state when this object was made.
        seen: the newest entry of the transcript that a reply has told of: its sequence number and its hash.
            :meth:`verify` looks it up in the transcript. Whoever keeps it elsewhere can give it to
            ``curator audit replay`` as ``--entries`` and ``--head``.
        told: every entry that a reply has told of, in little room, for :meth:`verify`.
    """

    def __init__(self, transport: Transport, seen_log: SeenLog, opened: SessionState) -> None:
        self._transport, self._seen_log = transport, seen_log
        self._path = _session_path(opened.id)
        self.opened = opened
        self.seen: tuple[int, str] | None = None
        self.told = SeenEntries()
        self._saw(opened.sequence, opened.head_hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.id!r}, dataset={self.opened.dataset!r})"

    def __str__(self) -> str:
        return f"{self!r}\n{self.plan}"

    @property
    def id(self) -> str:
        """The session's identifier."""
        return self.opened.id

    @property
    def plan(self) -> Plan:
        """The session's promises, and its cost at most."""
        return self.opened.plan

    def state(self) -> SessionState:
        """Where the session stands now."""
        return self._seen_in(SessionState.parse(self._transport.json(Call("GET", self._path))))

    def _saw(self, sequence: int | None, head: str | None, value: float | None = None) -> None:
        """Remember an entry that a reply told of; as the newest, unless a later one is known: a repeated call gets an
        old reply.
        """
        if sequence is None or head is None:
            return
        self.told.add(sequence, head, value)
        if self.seen is None or sequence > self.seen[0]:
            self.seen = sequence, head

    def _seen_in(self, state: SessionState) -> SessionState:
        self._saw(state.sequence, state.head_hash)
        return state

    def _answered(self, reply: JSON) -> Answer | Marginal:
        answer = parse_answer(reply)
        self._saw(answer.sequence, answer.entry_hash, answer.value if isinstance(answer, Answer) else None)
        return answer

    def ask(
        self,
        query: QueryLike,
        *,
        within: float | None = None,
        confidence: float | None = None,
        adaptive: bool = False,
        key: str | None = None,
    ) -> Answer:
        """Answer one query that asks for one number.

        Args:
            query: what is asked.
            within: largest half-width of the answer's interval, in counts or in the unit of the attribute; the session
                decides where it is left out.
            confidence: of that interval.
            adaptive: whether the question was chosen by what was released before, which takes a wider interval.
            key: as in :meth:`Curator.open_session`.

        Raises:
            ValueError: for a question whose answer is a table: see :meth:`marginal`.
        """
        if not isinstance(query, Dense) and asks_table(query):
            raise ValueError("the answer is a table: ask with Session.marginal")
        answer = self._ask(query, _wanted(within, confidence, adaptive), key)
        if not isinstance(answer, Answer):
            raise ProtocolError("the reply is a table, which was not asked for")
        return answer

    def marginal(
        self,
        attributes: str | Iterable[str] | Mapping[str, Any],
        *,
        bins: Bins | None = None,
        where: Mapping[str, Any] | None = None,
        within: float | None = None,
        confidence: float | None = None,
        adaptive: bool = False,
        key: str | None = None,
    ) -> Marginal:
        """A table of counts, which is one question and one charge::

            print(session.marginal(["age", "sex"], bins={"age": [15, 30, 45, 60, 95]}, where={"workclass": 3}))

        Args:
            attributes: their names, in the order of the table's axes; or the whole question as
                :func:`~curator_client.marginal`, :func:`~curator_client.statistic` or another function of a question
                whose answer is a table makes it, without bins and conditions here.
            bins: for some of them the edges of coarser bins, or groups of values that are counted as one, by name.
            where: conditions, as for :func:`~curator_client.queries.where`.
            within: as for :meth:`ask`, of every cell.
            confidence: as for :meth:`ask`.
            adaptive: as for :meth:`ask`.
            key: as in :meth:`Curator.open_session`.
        """
        question = attributes if isinstance(attributes, Mapping) else marginal(attributes, bins=bins, where=where)
        answer = self._ask(question, _wanted(within, confidence, adaptive), key)
        if not isinstance(answer, Marginal):
            raise ProtocolError("the reply is no table")
        return answer

    def blocks(
        self,
        left: Groups,
        right: Groups | None = None,
        *,
        only: Literal["within"] | None = None,
        **wanted: Unpack[Wanted],
    ) -> Marginal:
        """The edges between groups of nodes, or sums of a matrix' entries, which is one question and one charge::

            print(session.blocks({"red": [0, 1, 2], "blue": [3, 4]}))
            print(session.blocks(["red", "red", "red", "blue", "blue", None], only="within"))

        Args:
            left: groups, as for :func:`~curator_client.queries.blocks`.
            right: those that edges end at; the same where they are left out.
            only: ``within`` asks only from each group to the one of the same name.
            wanted: ``within``, ``confidence``, ``adaptive`` and ``key``, as for :meth:`ask`.
        """
        return self.marginal(blocks(left, right, only), **wanted)

    def degrees(
        self,
        side: Literal["left", "right", "out", "in"] | None = None,
        bins: Iterable[int] | None = None,
        **wanted: Unpack[Wanted],
    ) -> Marginal:
        """How many nodes of a graph have a degree in each bin, as :func:`~curator_client.queries.degrees` has it::

            print(session.degrees("out", bins=[0, 1, 2, 5, 10]))

        Args:
            side: whose degrees; None of an undirected graph.
            bins: the least degree of each bin; doubling where they are left out.
            wanted: as for :meth:`blocks`.
        """
        return self.marginal(degrees(side, bins), **wanted)

    @overload
    def sum(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer: ...

    @overload
    def sum(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str],
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Marginal: ...

    def sum(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str] | None = None,
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer | Marginal:
        """The sum of an attribute that is declared with a grid: one number, or a table by groups.

        Args:
            of: the attribute.
            where: conditions, as for :func:`~curator_client.queries.where`.
            group_by: attributes; there is a sum for each combination of their values.
            bins: for some of these the edges of coarser bins, or groups of values, as for :meth:`marginal`.
            wanted: ``within``, ``confidence``, ``adaptive`` and ``key``, as for :meth:`ask`.
        """
        return self._statistic("sum", of, None, where, group_by, bins, wanted)

    @overload
    def mean(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer: ...

    @overload
    def mean(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str],
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Marginal: ...

    def mean(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str] | None = None,
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer | Marginal:
        """The mean of an attribute that is declared with a grid, as for :meth:`sum`::

        print(session.mean("income", group_by="sex", where={"age": {"ge": 30}}))
        """
        return self._statistic("mean", of, None, where, group_by, bins, wanted)

    @overload
    def variance(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer: ...

    @overload
    def variance(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str],
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Marginal: ...

    def variance(
        self,
        of: str,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str] | None = None,
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer | Marginal:
        """The variance of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._statistic("variance", of, None, where, group_by, bins, wanted)

    @overload
    def quantile(
        self,
        of: str,
        *,
        q: float,
        where: Mapping[str, Any] | None = None,
        group_by: None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer: ...

    @overload
    def quantile(
        self,
        of: str,
        *,
        q: float | Sequence[float],
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str] | None = None,
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer | Marginal: ...

    def quantile(
        self,
        of: str,
        *,
        q: float | Sequence[float],
        where: Mapping[str, Any] | None = None,
        group_by: str | Iterable[str] | None = None,
        bins: Bins | None = None,
        **wanted: Unpack[Wanted],
    ) -> Answer | Marginal:
        """Quantiles of an attribute that is declared with a grid, as for :meth:`sum`.

        Args:
            of: the attribute.
            q: the part of the records that lies below, or several of them, ascending: then the last axis is ``q``.
            where: as for :meth:`sum`.
            group_by: as for :meth:`sum`.
            bins: as for :meth:`sum`.
            wanted: as for :meth:`sum`, without ``within``, which quantiles refuse.
        """
        return self._statistic("quantile", of, q, where, group_by, bins, wanted)

    def _statistic(
        self,
        kind: Literal["sum", "mean", "variance", "quantile"],
        of: str,
        q: float | Sequence[float] | None,
        where: Mapping[str, Any] | None,
        group_by: str | Iterable[str] | None,
        bins: Bins | None,
        wanted: Wanted,
    ) -> Answer | Marginal:
        return self.answer(statistic(kind, of, q=q, where=where, group_by=group_by or (), bins=bins), **wanted)

    def answer(
        self,
        query: QueryLike,
        *,
        within: float | None = None,
        confidence: float | None = None,
        adaptive: bool = False,
        key: str | None = None,
    ) -> Answer | Marginal:
        """Answer one query, whether that is one number or a table; otherwise as :meth:`ask`."""
        return self._ask(query, _wanted(within, confidence, adaptive), key)

    def _ask(self, query: QueryLike, wanted: JSON, key: str | None) -> Answer | Marginal:
        key = key or _new_key()
        path = f"{self._path}/queries"
        if isinstance(query, Dense):
            body = query.body()
            words = urlencode({name: json.dumps(value) for name, value in wanted.items()})
            address = f"{path}?{words}" if words else path
            call = Call("POST", address, {"Content-Type": NPY}, lambda: {"content": body}, key)
        else:
            call = _json_call("POST", path, {**query, **wanted}, key=key)
        return self._answered(self._transport.json(call))

    def ask_mean(self, query: QueryLike, over: float, *, key: str | None = None) -> Answer:
        """Ask a sum of weights and get a mean: it and its errors are divided by ``over``; ``raw`` is the sum's reply.

        For entries of matrices, edges and weights that are the question's own; of an attribute with a grid see
        :meth:`mean`. The noise of an answer is the same whatever a query's weights. A mean asked with weights of
        ``1/over`` has the whole error bound; asked as a sum, with weights up to 1, it has one that is ``over`` times
        smaller::

            session.ask_mean(cut(users, films), over=len(users) * len(films))

        Args:
            query: the sum.
            over: how many cells or records it is a sum of, where that is known, or any other positive number.
            key: as in :meth:`Curator.open_session`.

        Raises:
            ValueError: when ``over`` is not a positive number.
        """
        if not 0 < over < math.inf:
            raise ValueError("over is a positive number")
        answer = self.ask(query, key=key)
        ends = answer.interval
        return replace(
            answer,
            value=None if answer.value is None else answer.value / over,
            error_bound=None if answer.error_bound is None else answer.error_bound / over,
            standard_error=None if answer.standard_error is None else answer.standard_error / over,
            interval=None if ends is None else (ends[0] / over, ends[1] / over),
        )

    def ask_many(
        self,
        queries: Iterable[QueryLike],
        *,
        batch_size: int = 256,
        progress: Callable[[int], None] | None = None,
    ) -> list[Answer | Marginal | Refused]:
        """Answer queries in order, in batches.

        Args:
            queries: the queries; taken from the iterable a batch at a time.
            batch_size: most queries of a batch.
            progress: called after each batch with the number of answers so far.

        Returns:
            For each query its answer, or the refusal with which it was refused.
        """
        answers: list[Answer | Marginal | Refused] = []
        batch: list[Mapping[str, Any]] = []
        for query in queries:
            batch.append(query.as_json() if isinstance(query, Dense) else query)
            if len(batch) == batch_size:
                answers += self._batch(batch)
                batch = []
                if progress is not None:
                    progress(len(answers))
        if batch:
            answers += self._batch(batch)
            if progress is not None:
                progress(len(answers))
        return answers

    def _batch(self, batch: Sequence[Mapping[str, Any]]) -> list[Answer | Marginal | Refused]:
        call = _json_call("POST", f"{self._path}/queries/batch", {"queries": batch}, key=_new_key())
        items = need(self._transport.json(call), "answers")
        if not isinstance(items, list) or len(items) != len(batch):
            raise ProtocolError("the batch has not as many answers as queries")
        return [
            self._answered(item) if "sequence" in item else refusal(item, int(item.get("status", 0))) for item in items
        ]

    def close(self, *, key: str | None = None) -> SessionState:
        """Close the session; what it reserved and did not spend returns to the data set."""
        reply = self._transport.json(_json_call("POST", f"{self._path}/close", key=key or _new_key()))
        return self._seen_in(SessionState.parse(reply))

    def transcript(
        self,
        path: Path | str,
        *,
        progress: Callable[[int], None] | None = None,
        most_bytes: int = MOST_TRANSCRIPT,
    ) -> Path:
        """Download the transcript (NDJSON) to ``path``, which appears only once it is whole.

        Args:
            path: where to write it.
            progress: called after each piece with the number of bytes so far.
            most_bytes: that it may have.

        Raises:
            ProtocolError: when it has more.
        """
        target = Path(path)
        self._transport.download(Call("GET", f"{self._path}/transcript", most=most_bytes), target, progress)
        return target

    def verify(self, *, log: LogFolder | Path | str | bool = False, memory_limit: int | None = None) -> JSON:
        """Download the transcript, replay it here, and check that every entry this client was told of is in it, as it
        was told.

        Then everything up to the newest of them is as it was when it was answered: nothing was removed, rewritten or
        given another time. Of later entries, such as those of another client, only the replay is checked.

        Args:
            log: a folder in which the log is kept, as an auditor keeps one: then the whole transcript must be what the
                log has of the session. True looks as far as any caller may: the checkpoint that is shown now must
                follow on those that were shown to this client before, which tells nothing of the session's records.
            memory_limit: most bytes that the replay may hold; 4 GiB by default.

        Returns:
            What the replay found: entries, updates, what was spent, and so on; and under ``log`` where one was asked
            for the ``size`` of the log, what was ``checked`` by it and what was ``not_checked``.

        Raises:
            NotVerified: when the transcript does not replay, is another session's, lacks an entry that was told of or
                has another in its place, or is not what the log has.
            Contradicted: when the log is not what it was, or not what was signed.
            app.audit.failures.Undecided: when the replay itself fails, which is no verdict.
        """
        replay_file = server("verifying.transcript").replay_file
        entries, head = (None, None) if self.seen is None else self.seen
        limit = server("audit.replay").MEMORY_LIMIT if memory_limit is None else memory_limit
        with TemporaryDirectory(prefix="curator-") as folder:
            path = self.transcript(Path(folder) / "transcript.ndjson")
            verdict = replay_file(path, head=head, entries=entries, memory_limit=limit)
            summary: dict[str, Any] = verdict.summary
            if not verdict.ok:
                where = "" if verdict.sequence is None else f"entry {verdict.sequence}: "
                raise NotVerified(f"the transcript of session {self.id}: {where}{verdict.problem}")
            if summary["session"] != self.id:
                raise NotVerified(f"the transcript is not that of session {self.id}")
            with path.open("rb") as file:
                self.told.check(file)
            if log is False:
                return summary
            if log is True:
                return summary | {"log": self._look_at_log()}
            if self.opened.dummy:
                raise NotVerified("a session on made-up records is in no log")
            found, count = (log if isinstance(log, LogFolder) else LogFolder(log)).verify(path)
        return summary | {"log": {"size": found.size, "checked": [f"{count} records"], "not_checked": []}}

    def _look_at_log(self) -> JSON:
        """Look at the log as far as it can be checked without its entries."""
        found = self._seen_log.look()
        checked, left = ["one key, and no smaller log than was shown before"], ["that the records are in the log"]
        if found["proven"] is not None:
            (checked if found["proven"] else left).append("that the log begins with what was shown before")
        return {"size": found["size"], "checked": checked, "not_checked": left}

    def hypothesis(self) -> Hypothesis:
        """The public hypothesis as an array in the shape of the data set's space."""
        response = self._hypothesis(NPY)
        return Hypothesis(_array(response.content), _updates(response))

    def hypothesis_table(self) -> pa.Table:
        """The public hypothesis as a table with named columns (synthetic data)."""
        return arrow_table(self._hypothesis(ARROW).content)

    def save_hypothesis(self, path: Path | str) -> Path:
        """Write the public hypothesis to ``path`` as Parquet (``.npy`` or ``.arrow`` by the ending)."""
        target = Path(path)
        accept = {".npy": NPY, ".arrow": ARROW}.get(target.suffix, PARQUET)
        target.write_bytes(self._hypothesis(accept).content)
        return target

    def _hypothesis(self, accept: str) -> Reply:
        return self._transport.send(Call("GET", f"{self._path}/hypothesis", {"Accept": accept}, most=MOST_DATA))


def _array(content: bytes) -> NDArray[np.float64]:
    """The array of a .npy file, of the size that it says.

    Raises:
        ProtocolError: when it is none.
    """
    import numpy as np
    from numpy.lib import format as npy

    stream = io.BytesIO(content)
    # The header is parsed as Python, which raises almost anything on what is none.
    with suppress(Exception):
        if npy.read_magic(stream) == (1, 0):
            shape, fortran, dtype = npy.read_array_header_1_0(stream)
            if dtype.kind in "iuf" and len(content) - stream.tell() == math.prod(shape) * dtype.itemsize:
                found = np.frombuffer(content, dtype, offset=stream.tell())
                return found.reshape(shape, order="F" if fortran else "C").astype(np.float64)
    raise ProtocolError("the hypothesis is not an array")


def _updates(response: Reply) -> int | None:
    """The number of updates of the hypothesis, by the reply's header; None where there is none."""
    value = response.headers.get("curator-updates", "")
    return int(value) if value.isdigit() else None
