"""Every route of the contract as a method: :class:`Curator` has those of the service, :class:`Session` of a session."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, suppress
from decimal import Decimal
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, cast, overload
from urllib.parse import quote, urlencode

from curator_client import questions
from curator_client.answers import Answer, Table, parse_answer
from curator_client.audits import Audit, AuditState
from curator_client.calls import MOST_DATA, MOST_TRANSCRIPT, SMALL, Call, Reply
from curator_client.conditions import Condition
from curator_client.errors import BatchFailed, NotVerified, ProtocolError, Refused, SqlRefused, refusal
from curator_client.extras import server
from curator_client.log import LogFolder
from curator_client.mechanisms import Mechanism, spelled
from curator_client.models import (
    JSON,
    Check,
    Commitment,
    Comparison,
    Dataset,
    Grant,
    Holder,
    Hypothesis,
    Key,
    Ledger,
    Plan,
    Principal,
    Registered,
    Role,
    SessionState,
    need,
)
from curator_client.progress import Progress, counted
from curator_client.questions import Bins, By, Dense, Grouped, Groups, Nodes, Question, Selection, Side, where
from curator_client.releases import ARROW, Release, ReleaseState, WorkloadPlan, arrow_table
from curator_client.results import Price, SqlResult, WhatIf
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
A = TypeVar("A", bound="Answer | Table")
#: Items of a page of a list.
PAGE = 1000
Amount = int | float | Decimal


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
        url: address of the service, without ``/v1``: ``CURATOR_URL`` where it is left out, or this machine's port 8000.
        key: the caller's: ``CURATOR_API_KEY`` where it is left out. Some routes need none.
        timeout: seconds that one try may take.
        retry_for: seconds for which a call is tried again.

    Raises:
        Refused: by every method, when the service refuses.
        Unreachable: by every method, when no reply comes.
        ProtocolError: by every method, when the reply is not one of the contract.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout: float = 60.0, retry_for: float = 60.0
    ) -> None:
        # Imported here: `import curator_client` is to be quick, for those too who ask nothing.
        from curator_client._http import Transport

        url = url or os.environ.get("CURATOR_URL") or "http://127.0.0.1:8000"
        key = key or os.environ.get("CURATOR_API_KEY") or None
        self._transport = Transport(url, key, timeout=timeout, retry_for=retry_for)
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

    def add_principal(self, name: str, role: Role) -> Key:
        """Add somebody who may call, as admin, analyst or auditor. The key is in this reply alone."""
        return Key.parse(self._transport.json(_json_call("POST", "/v1/principals", {"name": name, "role": role})))

    def principals(self) -> list[Principal]:
        """Everybody who may call or ever might, without keys."""
        return [Principal.parse(item) for item in self._items("/v1/principals")]

    def rotate_key(self, name: str) -> Key:
        """Replace a principal's key, also a revoked one. The new key is in this reply alone."""
        return Key.parse(self._transport.json(Call("POST", f"/v1/principals/{_segment(name)}/key")))

    def revoke(self, name: str) -> None:
        """Revoke a principal's key. Nobody else ever gets the name."""
        self._transport.send(Call("DELETE", f"/v1/principals/{_segment(name)}"))

    # Data sets

    def register(self, spec: JSON, data: Data, *, filename: str | None = None) -> Registered:
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
            return Registered.parse(self._transport.json(Call("POST", "/v1/datasets", content=content)))

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

    def grant(self, dataset: str, principal: str, epsilon: Amount) -> Grant:
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
        """Every movement of a data set's budget, and what they come to."""
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

    def reveal_commitment(self, dataset: str) -> Commitment:
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
        *,
        epsilon: Amount,
        max_queries: int | None = None,
        mechanism: Mechanism = "auto",
        **options: Any,
    ) -> Plan:
        """Plan a session: its promises and costs; charges nothing. Arguments as for :meth:`session`."""
        # A plan changes nothing and may be repeated. The key tells the transport so; the service ignores it.
        body = _opening(dataset, mechanism, epsilon, max_queries, options)
        return Plan.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def what_if(
        self,
        dataset: str,
        *,
        epsilon: Amount | Sequence[Amount],
        max_queries: int | Sequence[int],
        mechanism: Mechanism = "auto",
    ) -> WhatIf:
        """What sessions of several shares and numbers of questions would promise, side by side; charges nothing.

        Args:
            dataset: name of the data set.
            epsilon: a share of the data set's epsilon, or several.
            max_queries: a number of questions, or several. At most 48 combinations.
            mechanism: as for :meth:`session`.
        """
        swept = {
            "epsilon": [*epsilon] if isinstance(epsilon, Sequence) else [epsilon],
            "max_queries": [*max_queries] if isinstance(max_queries, Sequence) else [max_queries],
        }
        body: dict[str, Any] = {"dataset": dataset, "sweep": swept}
        if mechanism != "auto":
            body["mechanism"] = spelled(mechanism)
        return WhatIf(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def compare(
        self, dataset: str, mechanisms: Sequence[Mechanism], *, epsilon: Amount, max_queries: int, **options: Any
    ) -> Comparison:
        """The plans of several mechanisms for one task, side by side; charges nothing.

        ``options`` as for :meth:`session`. Where a mechanism has no plan, its outcome has the refusal.
        """
        body = _opening(dataset, "auto", epsilon, max_queries, options)
        body["mechanisms"] = [spelled(mechanism) for mechanism in mechanisms]
        return Comparison.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def session(
        self,
        dataset: str,
        *,
        epsilon: Amount,
        max_queries: int | None = None,
        mechanism: Mechanism = "auto",
        within: float | None = None,
        confidence: float | None = None,
        start: Literal["evidence", "nothing"] | None = None,
        share: bool | None = None,
        contract: bool | None = None,
        max_updates: int | None = None,
        beta: float | None = None,
        calibration: Literal["rdp", "exact", "jt2012", "gru2011"] | None = None,
        release: Literal["single", "race"] | None = None,
        dummy: bool = False,
        key: str | None = None,
    ) -> Session:
        """Open a session, reserving ``epsilon`` of the data set's epsilon for it.

        As a context manager it is closed at the end, which returns what it did not spend::

            with curator.session("people", epsilon=0.5, max_queries=100) as session:
                print(session.count(age=(30, 40)))

        Args:
            dataset: name of the data set.
            epsilon: the share of the data set's epsilon that the session may spend.
            max_queries: the most queries that the session answers; its bound holds for all of them together. A session
                that answers from evidence needs no such number, and spends better if it has one.
            mechanism: how it answers; the service chooses by default (:mod:`curator_client.mechanisms`).
            within: largest half-width of the intervals of its answers, in counts; of evidence.
            confidence: of those intervals.
            start: ``nothing`` leaves out what was measured before.
            share: whether others may start from what this one measures.
            contract: whether all answers keep an error bound together; of evidence.
            max_updates: the most updates of its hypothesis.
            beta: the probability with which the error bound may fail.
            calibration: how the noise of tests is calibrated.
            release: how a value is released after a test.
            dummy: whether to answer from made-up records, free of charge.
            key: Idempotency-Key, for a caller who wants to repeat the call from another process; a new one by default.
        """
        options = {
            "within": within,
            "confidence": confidence,
            "start": start,
            "share": share,
            "contract": contract,
            "max_updates": max_updates,
            "beta": beta,
            "calibration": calibration,
            "release": release,
            "dummy": dummy or None,
        }
        body = _opening(dataset, mechanism, epsilon, max_queries, options)
        call = _json_call("POST", "/v1/sessions", body, key=key or _new_key())
        return Session(self._transport, self._seen_log, SessionState.parse(self._transport.json(call)))

    def resume(self, id: str) -> Session:
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
        epsilon: Amount,
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
            key: Idempotency-Key, as for :meth:`session`.
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
        tables: Iterable[Question[Table]] | None = None,
        session: str | None = None,
        epsilon: Amount = 0,
        key: str | None = None,
        **options: Any,
    ) -> Release:
        """Ask for a publication: tables of whole numbers that add up to one another, from all that was measured.

        Args:
            dataset: name of the data set.
            tables: questions for counts by groups; or leave them out and give ``session``.
            session: id of a session of yours: the tables are what it was asked for.
            epsilon: what may be spent to measure for it first; by default nothing.
            key: Idempotency-Key, as for :meth:`session`.
            **options: ``start``, ``share`` and ``within``, as in the API's documents.

        Raises:
            ValueError: unless one of ``tables`` and ``session`` is given.
        """
        if (tables is None) == (session is None):
            raise ValueError("give one of tables, session")
        asked = {"session": session} if tables is None else [table.json for table in tables]
        body = {"dataset": dataset, "method": "publication", "tables": asked, "epsilon": epsilon}
        body |= {name: value for name, value in options.items() if value is not None}
        call = _json_call("POST", "/v1/releases", body, key=key or _new_key())
        return Release(self._transport, ReleaseState.parse(self._transport.json(call)))

    def plan_release(self, dataset: str, *, workload: JSON, epsilon: Amount, **options: Any) -> WorkloadPlan:
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

    # Audits of the service by itself

    def audit(self, session: str | None = None, *, checkpoint: bytes | None = None, key: str | None = None) -> Audit:
        """Have the service check its log and its transcripts, for auditors and admins; one audit at a time.

        It is the service's word about itself: :class:`LogFolder` checks the same on your own machine.

        Args:
            session: the one whose transcript alone is replayed; all of them where it is left out.
            checkpoint: a signed one that you kept, which the log is to begin with.
            key: Idempotency-Key, as for :meth:`session`.

        Raises:
            Conflict: when another one is under way; ``extra["audit"]`` is its id.
        """
        body: dict[str, Any] = {"all": True} if session is None else {"session": session}
        if checkpoint is not None:
            body["checkpoint"] = checkpoint.decode()
        call = _json_call("POST", "/v1/audits", body, key=key or _new_key())
        return Audit(self._transport, AuditState.parse(self._transport.json(call)))

    def existing_audit(self, id: str) -> Audit:
        """An audit that was asked for in the last day, by whomever."""
        call = Call("GET", f"/v1/audits/{_segment(id)}")
        return Audit(self._transport, AuditState.parse(self._transport.json(call)))

    def audits(self) -> list[AuditState]:
        """The audits of the last day, in the order they were asked for, without their results."""
        return [AuditState.parse(item) for item in self._items("/v1/audits")]

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
    dataset: str, mechanism: Mechanism, epsilon: Amount, max_queries: int | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a session or plan, without what is None: the service has defaults for that."""
    given = {
        "mechanism": None if mechanism == "auto" else spelled(mechanism),
        "epsilon": epsilon,
        "max_queries": max_queries,
        **options,
    }
    return {"dataset": dataset, **{name: value for name, value in given.items() if value is not None}}


def _of(by: By | None, bins: Bins | None, where: Selection | None) -> Selection | Grouped:
    """The records that a statistic is of, by groups where there are any."""
    chosen = Selection({}) if where is None else where
    if by is None:
        if bins is not None:
            raise ValueError("bins are of attributes in by")
        return chosen
    return chosen.by(*([by] if isinstance(by, str) else by), bins=bins)


def _said(**given: Any) -> dict[str, Any]:
    """What is wanted of an answer, without what is left to the session."""
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
    def dataset(self) -> str:
        """The name of the data set that it is on."""
        return self.opened.dataset

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

    def _answered(self, reply: Any, question: Question[A]) -> A:
        """What a reply says to a question.

        Raises:
            ProtocolError: when it is no answer, or one number in place of a table, or the other way round.
        """
        answer = parse_answer(reply, question)
        self._saw(answer.sequence, answer.entry_hash, answer if isinstance(answer, Answer) else None)
        if question.is_table != isinstance(answer, Table):
            raise ProtocolError("the reply is a number where a table was asked for, or a table in place of a number")
        return cast(A, answer)

    def ask(
        self,
        question: Question[A],
        *,
        within: float | None = None,
        confidence: float | None = None,
        adaptive: bool = False,
        at_most: float | None = None,
        key: str | None = None,
    ) -> A:
        """Answer one question: a number, or a table, as it is asked.

        Args:
            question: what is asked.
            within: largest half-width of the answer's interval (of every cell's), in counts or in the unit of the
                attribute; the session decides where it is left out.
            confidence: of that interval.
            adaptive: whether the question was chosen by what was released before, which takes a wider interval.
            at_most: what it may cost, in epsilon; it is refused, before noise, where it would cost more.
            key: as in :meth:`Curator.session`.

        Raises:
            TooExact: when it would cost more than ``at_most``, or ``within`` cannot be paid.
        """
        wanted = _said(within=within, confidence=confidence, adaptive=adaptive or None, at_most=at_most)
        path = f"{self._path}/queries"
        if isinstance(question, Dense):
            body = question.npy()
            words = urlencode({name: json.dumps(value) for name, value in wanted.items()})
            address = f"{path}?{words}" if words else path
            call = Call("POST", address, {"Content-Type": NPY}, lambda: {"content": body}, key or _new_key())
        else:
            call = _json_call("POST", path, {**question.json, **wanted}, key=key or _new_key())
        return self._answered(self._transport.json(call), question)

    def price(self, question: Question[Any], *, within: float | None = None, confidence: float | None = None) -> Price:
        """What a question would cost and tell, from public things alone. Nothing is asked, recorded or charged.

        Args:
            question: what would be asked.
            within: as for :meth:`ask`.
            confidence: as for :meth:`ask`.
        """
        body = {**question.json, **_said(within=within, confidence=confidence)}
        # It changes nothing to ask again. The key tells the transport so; the service ignores it.
        return Price(self._transport.json(_json_call("POST", f"{self._path}/price", body, key=_new_key())))

    def sql(self, statement: str, *, at_most: float | None = None, key: str | None = None) -> SqlResult:
        """Ask a statement of SQL, or its price with ``EXPLAIN``.

        Args:
            statement: such as ``SELECT sex, AVG(hours) FROM survey GROUP BY sex``.
            at_most: what all of its answers together may cost, in epsilon; it is refused, before noise, where they
                would cost more.
            key: as in :meth:`Curator.session`.

        Raises:
            SqlRefused: when it has no meaning here, at which place, and what to write instead.
            TooExact: when it would cost more than ``at_most``.
        """
        body = {"statement": statement, **_said(at_most=at_most)}
        try:
            reply = self._transport.json(_json_call("POST", f"{self._path}/sql", body, key=key or _new_key()))
        except SqlRefused as refused:
            refused.statement = statement
            raise
        result = SqlResult(reply)
        for answer in result.answers:
            self._saw(answer.sequence, answer.entry_hash, answer if isinstance(answer, Answer) else None)
        return result

    def count(
        self, *conditions: Condition, within: float | None = None, adaptive: bool = False, **by_name: Any
    ) -> Answer:
        """How many records satisfy all of some conditions, as for :func:`curator_client.where`::

        session.count(col("hrwage") >= 20, age=(None, 35))
        """
        return self.ask(where(*conditions, **by_name).count(), within=within, adaptive=adaptive)

    def group_by(
        self, *names: str, bins: Bins | None = None, where: Selection | None = None, within: float | None = None
    ) -> Table:
        """Counts for each combination of values of some attributes: one question and one charge::

            print(session.group_by("age", "sex", bins={"age": [15, 30, 45, 60, 95]}, where=where(workclass=3)))

        Args:
            names: attributes, in the order of the table's axes.
            bins: for some of them the edges of coarser bins, or groups of values that are counted as one, by name.
            where: the records; all where it is left out.
            within: as for :meth:`ask`, of every cell.
        """
        return self.ask((where or Selection({})).by(*names, bins=bins).count(), within=within)

    def crosstab(self, rows: str, columns: str, *, bins: Bins | None = None, where: Selection | None = None) -> Table:
        """Counts by two attributes, as :meth:`group_by`."""
        return self.group_by(rows, columns, bins=bins, where=where)

    def histogram(self, of: str, *, bins: Iterable[Any] | None = None, where: Selection | None = None) -> Table:
        """Counts by one attribute, in bins with these edges, as :meth:`group_by`."""
        return self.group_by(of, bins=None if bins is None else {of: bins}, where=where)

    @overload
    def sum(self, of: str, *, where: Selection | None = None, within: float | None = None) -> Answer: ...
    @overload
    def sum(
        self, of: str, *, by: By, bins: Bins | None = None, where: Selection | None = None, within: float | None = None
    ) -> Table: ...
    def sum(
        self,
        of: str,
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Selection | None = None,
        within: float | None = None,
    ) -> Answer | Table:
        """The sum of an attribute that is declared with a grid: one number, or a table by groups.

        Args:
            of: the attribute.
            by: attributes; there is a sum for each combination of their values.
            bins: for some of these the edges of coarser bins, or groups of values.
            where: the records; all where it is left out.
            within: as for :meth:`ask`.
        """
        return self._of_statistic(_of(by, bins, where).sum(of), within)

    @overload
    def mean(self, of: str, *, where: Selection | None = None, within: float | None = None) -> Answer: ...
    @overload
    def mean(
        self, of: str, *, by: By, bins: Bins | None = None, where: Selection | None = None, within: float | None = None
    ) -> Table: ...
    def mean(
        self,
        of: str,
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Selection | None = None,
        within: float | None = None,
    ) -> Answer | Table:
        """The mean of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._of_statistic(_of(by, bins, where).mean(of), within=within)

    @overload
    def variance(self, of: str, *, where: Selection | None = None, within: float | None = None) -> Answer: ...
    @overload
    def variance(
        self, of: str, *, by: By, bins: Bins | None = None, where: Selection | None = None, within: float | None = None
    ) -> Table: ...
    def variance(
        self,
        of: str,
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Selection | None = None,
        within: float | None = None,
    ) -> Answer | Table:
        """The variance of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._of_statistic(_of(by, bins, where).variance(of), within=within)

    @overload
    def median(self, of: str, *, where: Selection | None = None) -> Answer: ...
    @overload
    def median(self, of: str, *, by: By, bins: Bins | None = None, where: Selection | None = None) -> Table: ...
    def median(
        self, of: str, *, by: By | None = None, bins: Bins | None = None, where: Selection | None = None
    ) -> Answer | Table:
        """The median of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._of_statistic(_of(by, bins, where).median(of))

    @overload
    def quantile(self, of: str, q: float, *, where: Selection | None = None) -> Answer: ...
    @overload
    def quantile(self, of: str, q: Sequence[float], *, where: Selection | None = None) -> Table: ...
    @overload
    def quantile(
        self, of: str, q: float | Sequence[float], *, by: By, bins: Bins | None = None, where: Selection | None = None
    ) -> Table: ...
    def quantile(
        self,
        of: str,
        q: float | Sequence[float],
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Selection | None = None,
    ) -> Answer | Table:
        """Quantiles of an attribute that is declared with a grid, as for :meth:`sum`.

        Args:
            of: the attribute.
            q: the part of the records that lies below, or several of them, ascending: then the last axis is ``q``.
            by: as for :meth:`sum`.
            bins: as for :meth:`sum`.
            where: as for :meth:`sum`.
        """
        return self._of_statistic(_of(by, bins, where).quantile(of, q))

    def _of_statistic(self, question: Question[Any], within: float | None = None) -> Answer | Table:
        answer: Answer | Table = self.ask(question, within=within)
        return answer

    def cut(self, left: Nodes, right: Nodes = "all", *, within: float | None = None) -> Answer:
        """The number (or weight) of edges from some nodes to others; of a matrix the sum of a block."""
        return self.ask(questions.cut(left, right), within=within)

    def blocks(self, left: Groups, right: Groups | None = None, *, only: Literal["within"] | None = None) -> Table:
        """The edges between groups of nodes, or sums of a matrix' entries, as :func:`curator_client.blocks`::

        print(session.blocks({"red": [0, 1, 2], "blue": [3, 4]}))
        """
        return self.ask(questions.blocks(left, right, only=only))

    def degrees(self, side: Side | None = None, *, bins: Iterable[int] | None = None) -> Table:
        """How many nodes of a graph have a degree in each bin, as :func:`curator_client.degrees`::

        print(session.degrees("out", bins=[0, 1, 2, 5, 10]))
        """
        return self.ask(questions.degrees(side, bins=bins))

    def ask_mean(self, question: Question[Answer], over: float, *, key: str | None = None) -> Answer:
        """Ask a sum of weights and get a mean: it and its errors are divided by ``over``.

        For entries of matrices, edges and weights that are the question's own; of an attribute with a grid see
        :meth:`mean`. The noise of an answer is the same whatever a question's weights. A mean asked with weights of
        ``1/over`` has the whole error bound; asked as a sum, with weights up to 1, it has one that is ``over`` times
        smaller::

            session.ask_mean(cut(users, films), over=len(users) * len(films))

        Args:
            question: the sum.
            over: how many cells or records it is a sum of, where that is known, or any other positive number.
            key: as in :meth:`Curator.session`.

        Raises:
            ValueError: when ``over`` is not a positive number.
        """
        if not 0 < over < math.inf:
            raise ValueError("over is a positive number")
        found = self.ask(question, key=key)

        def part(number: float | None) -> float | None:
            return None if number is None or math.isnan(number) else number / over

        divided: dict[str, Any] = {
            "value": part(found),
            "standard_error": part(found.standard_error),
            "error_bound": part(found.error_bound),
            "interval": None if found.interval is None else [part(end) for end in found.interval],
        }
        return Answer.parse({**found.raw, **divided}, question)

    @overload
    def ask_many(
        self,
        questions: Iterable[Question[A]],
        *,
        progress: Progress = False,
        batch_size: int = 256,
        on_error: Literal["raise"] = "raise",
    ) -> list[A]: ...
    @overload
    def ask_many(
        self,
        questions: Iterable[Question[A]],
        *,
        progress: Progress = False,
        batch_size: int = 256,
        on_error: Literal["return"],
    ) -> list[A | Refused]: ...
    def ask_many(
        self,
        questions: Iterable[Question[A]],
        *,
        progress: Progress = False,
        batch_size: int = 256,
        on_error: Literal["raise", "return"] = "raise",
    ) -> Any:
        """Answer questions in order, in batches.

        Args:
            questions: what is asked; taken from the iterable a batch at a time.
            progress: called after each batch with the number of answers so far and of all, None where that is not
                known; True shows them as a line on standard error, where that is a terminal.
            batch_size: most questions of a batch.
            on_error: ``return`` gives refusals in their places.

        Raises:
            BatchFailed: when a question was refused; the answers stand in its ``results``, the paid ones too.
        """
        show = counted if progress is True else progress
        all_of_them = len(questions) if isinstance(questions, Sized) else None
        results: list[A | Refused] = []
        left = iter(questions)
        while batch := list(islice(left, batch_size)):
            results += self._batch(batch)
            if callable(show):
                show(len(results), all_of_them)
        if on_error == "raise" and any(isinstance(each, Refused) for each in results):
            raise BatchFailed(cast("list[Answer | Table | Refused]", results))
        return results

    def _batch(self, batch: Sequence[Question[A]]) -> list[A | Refused]:
        body = {"queries": [question.json for question in batch]}
        call = _json_call("POST", f"{self._path}/queries/batch", body, key=_new_key())
        items = need(self._transport.json(call), "answers")
        if not isinstance(items, list) or len(items) != len(batch):
            raise ProtocolError("the batch has not as many answers as questions")
        return [
            self._answered(item, question) if "sequence" in item else refusal(item, int(item.get("status", 0)))
            for item, question in zip(items, batch, strict=True)
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
