# Made of _async/curator.py by make_sync.py: change that.

"""Every route of the contract as a method of the service; those of a session are in :mod:`.session`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlencode

from curator_client._sync.audits import Audit
from curator_client._sync.datasets import Dataset, Registered
from curator_client._sync.log import Log
from curator_client._sync.log_routes import LogRoutes
from curator_client._sync.releases import Release
from curator_client._sync.session import Session
from curator_client._sync.waiting import opening
from curator_client.audit_states import AuditState
from curator_client.calls import MOST_TRANSCRIPT, Call, Reply
from curator_client.errors import ProtocolError, Refused
from curator_client.mechanisms import Mechanism, spelled
from curator_client.models import (
    JSON,
    Check,
    Commitment,
    Comparison,
    Connection,
    Grant,
    Holder,
    Key,
    Ledger,
    Plan,
    Principal,
    Report,
    Role,
    SessionState,
    need,
)
from curator_client.progress import Progress, downloading
from curator_client.questions import Question
from curator_client.release_states import Method, ReleaseState, WorkloadPlan
from curator_client.requests import (
    Amount,
    Data,
    form,
    json_call,
    json_text,
    listed,
    new_key,
    opening_body,
    said,
    segment,
)
from curator_client.results import WhatIf


class Curator:
    """The service, called with one key.

    Calls that fail on the way are tried again where that is safe: openings, queries, batches and closings carry an
    ``Idempotency-Key``, so that a repeat gets the first reply and charges nothing more::

        with Curator() as curator, curator.session("people", epsilon=0.5) as session:
            print(session.count(age=(30, 40)))

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
        from curator_client._sync.service import Service

        self._service = Service.at(url, key, timeout=timeout, retry_for=retry_for)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the service; its sessions stay open."""
        self._service.transport.close()

    # Principals

    def add_principal(self, name: str, role: Role) -> Key:
        """Add somebody who may call, as admin, analyst or auditor. The key is in this reply alone."""
        call = json_call("POST", "/v1/principals", {"name": name, "role": role})
        return Key.parse(self._json(call))

    def principals(self) -> list[Principal]:
        """Everybody who may call or ever might, without keys."""
        return [Principal.parse(item) for item in self._service.items("/v1/principals")]

    def add_connection(self, name: str, url: str) -> None:
        """Add a connection to a database, by a URL with its secret, which nobody is shown again. For administrators."""
        self._json(json_call("POST", "/v1/connections", {"name": name, "url": url}))

    def connections(self) -> list[Connection]:
        """All connections by name, without their secrets. For administrators."""
        return [Connection.parse(item) for item in self._service.items("/v1/connections")]

    def replace_connection(self, name: str, url: str) -> None:
        """Keep another URL under the name of a connection, as after a password was changed. For administrators."""
        self._json(json_call("PUT", f"/v1/connections/{segment(name)}", {"url": url}))

    def check_connection(self, name: str) -> list[str]:
        """What is wrong with a connection's database, or with what its role may do; nothing where all is well. For
        administrators.
        """
        reply = self._json(Call("POST", f"/v1/connections/{segment(name)}/check"))
        return [str(each) for each in need(reply, "problems")]

    def remove_connection(self, name: str) -> None:
        """Forget a connection for good. For administrators."""
        self._send(Call("DELETE", f"/v1/connections/{segment(name)}"))

    def rotate_key(self, name: str) -> Key:
        """Replace a principal's key, also a revoked one. The new key is in this reply alone."""
        return Key.parse(self._json(Call("POST", f"/v1/principals/{segment(name)}/key")))

    def revoke(self, name: str) -> None:
        """Revoke a principal's key. Nobody else ever gets the name."""
        self._send(Call("DELETE", f"/v1/principals/{segment(name)}"))

    # Data sets

    def register(self, spec: JSON, data: Data | None = None, *, filename: str | None = None) -> Registered:
        """Register a data set: its declaration and its private data.

        Args:
            spec: the declaration, as the contract has it.
            data: a path; the bytes of a file, with ``filename`` telling the format by its ending; or an array
                of counts, sent as ``.npy``. None where the declaration names a source, files on the server's disk.
            filename: the name that tells the format; that of the path where none is given.

        Raises:
            ValueError: for bytes without a filename.
        """
        with ExitStack() as files:
            content = form(json_text(spec), data, filename, files)
            reply = self._json(Call("POST", "/v1/datasets", content=content))
        report, warnings = reply.get("report"), reply.get("warnings", ())
        told = None if report is None else Report.parse(report)
        return Registered(self._described(reply), tuple(map(str, warnings)), told)

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
            spec = json_text(spec)
        path = "/v1/datasets/check" + ("" if table is None else "?" + urlencode({"table": table}))
        with ExitStack() as files:
            # A check changes nothing and may be repeated. The key tells the transport so; the service ignores it.
            call = Call("POST", path, content=form(spec, data, filename, files), key=new_key())
            return Check.parse(self._json(call))

    def datasets(self) -> list[Dataset]:
        """Public descriptors of all data sets."""
        return [self._described(item) for item in self._service.items("/v1/datasets")]

    def dataset(self, name: str) -> Dataset:
        """The public descriptor of one data set."""
        return self._described(self._json(Call("GET", f"/v1/datasets/{segment(name)}")))

    def grant(self, dataset: str, principal: str, epsilon: Amount) -> Grant:
        """Cap an analyst's share of a data set's epsilon. Where access is by grant, this also gives access."""
        path = f"/v1/datasets/{segment(dataset)}/grants/{segment(principal)}"
        return Grant.parse(self._json(json_call("PUT", path, {"epsilon": epsilon})))

    def grants(self, dataset: str | None = None) -> list[Grant]:
        """What everybody may hold of a data set, holds and has spent; of the caller alone, on all data sets, where none
        is named.
        """
        path = "/v1/grants" if dataset is None else f"/v1/datasets/{segment(dataset)}/grants"
        return [Grant.parse(item) for item in self._service.items(path)]

    def holders(self, dataset: str) -> list[Holder]:
        """All sessions on a data set, those of releases too: whose they are and what they cost, not what was asked."""
        return [Holder.parse(item) for item in self._service.items(f"/v1/datasets/{segment(dataset)}/sessions")]

    def ledger(self, dataset: str) -> Ledger:
        """Every movement of a data set's budget, and what they come to."""
        entries: list[Any] = []
        for page in self._service.pages(f"/v1/datasets/{segment(dataset)}/ledger"):
            entries += listed(page, "entries")
        return Ledger.parse({**page, "entries": entries})

    def reveal_commitment(self, dataset: str) -> Commitment:
        """The commitment to a data set's private file, with the key that opens it: for an admin, and the log says so.

        Not after the data set is retired: the key is destroyed with the file.
        """
        # It changes nothing to ask again. The key tells the transport so; the service ignores it.
        call = Call("POST", f"/v1/datasets/{segment(dataset)}/commitment", key=new_key())
        return Commitment.parse(self._json(call))

    def retire(self, dataset: str) -> None:
        """Destroy a data set's private file; its public records stay, its name is never used again."""
        self._send(Call("DELETE", f"/v1/datasets/{segment(dataset)}"))

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
        body = opening_body(dataset, mechanism, epsilon, max_queries, options)
        return Plan.parse(self._json(json_call("POST", "/v1/plans", body, key=new_key())))

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
        return WhatIf(self._json(json_call("POST", "/v1/plans", body, key=new_key())))

    def compare(
        self, dataset: str, mechanisms: Sequence[Mechanism], *, epsilon: Amount, max_queries: int, **options: Any
    ) -> Comparison:
        """The plans of several mechanisms for one task, side by side; charges nothing.

        ``options`` as for :meth:`session`. Where a mechanism has no plan, its outcome has the refusal.
        """
        body = opening_body(dataset, "auto", epsilon, max_queries, options)
        body["mechanisms"] = [spelled(mechanism) for mechanism in mechanisms]
        return Comparison.parse(self._json(json_call("POST", "/v1/plans", body, key=new_key())))

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
        return opening(self._service.open(dataset, epsilon, max_queries, mechanism, options, key))

    def resume(self, id: str) -> Session:
        """An existing session."""
        return opening(self._service.resume(id))

    def sessions(self) -> list[SessionState]:
        """The sessions the caller may see."""
        return [SessionState.parse(item) for item in self._service.items("/v1/sessions")]

    # Releases

    def release(
        self,
        dataset: str,
        workload: JSON,
        *,
        epsilon: Amount,
        method: Method = "auto",
        records: int | None = None,
        rounding: Literal["edges"] | None = None,
        geometry: Literal["cut_norm", "spectral"] | None = None,
        rounds: int | None = None,
        construction: Literal["mw", "fk"] | None = None,
        start: Literal["evidence", "nothing"] | None = None,
        share: bool | None = None,
        key: str | None = None,
    ) -> Release:
        """Ask for a release of a workload that is known in advance: its share is reserved, and the work queued.

        Args:
            dataset: name of the data set.
            workload: such as ``{"marginals": 3}``, ``{"ranges": "age"}``, ``{"queries": [...]}`` or
                ``{"cuts": "all"}``.
            epsilon: the share of the data set's epsilon that it may spend.
            method: how; the service chooses by default.
            records: of ``synthetic_table``: how many.
            rounding: of ``synthetic_graph``: ``edges`` draws edges by their weights.
            geometry: of ``synthetic_graph``: in which norm it is near.
            rounds: of ``iterative_construction``: how many.
            construction: of ``iterative_construction``.
            start: as for :meth:`session`.
            share: as for :meth:`session`.
            key: Idempotency-Key, as for :meth:`session`.
        """
        options = said(
            records=records,
            rounding=rounding,
            geometry=geometry,
            rounds=rounds,
            construction=construction,
            start=start,
            share=share,
        )
        body = {"dataset": dataset, "workload": dict(workload), "epsilon": epsilon, "method": method, **options}
        return self._released(body, key)

    def publish(
        self,
        dataset: str,
        *,
        tables: Iterable[Question[Any]] | None = None,
        session: str | None = None,
        epsilon: Amount = 0,
        key: str | None = None,
        **options: Any,
    ) -> Release:
        """Ask for a publication: counts that add up to one another and statistics, from all that was measured.

        Args:
            dataset: name of the data set.
            tables: questions; or leave them out and give ``session``.
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
        body = {"dataset": dataset, "method": "publication", "tables": asked, "epsilon": epsilon, **said(**options)}
        return self._released(body, key)

    def _released(self, body: JSON, key: str | None) -> Release:
        reply = self._json(json_call("POST", "/v1/releases", body, key=key or new_key()))
        return Release(self._service.transport, ReleaseState.parse(reply))

    def plan_release(self, dataset: str, workload: JSON, *, epsilon: Amount, **options: Any) -> WorkloadPlan:
        """All ways to have a workload answered with a share, best first; charges nothing.

        Args:
            dataset: name of the data set.
            workload: as of :meth:`release`.
            epsilon: the share of the data set's epsilon.
            **options: as of :meth:`release`.
        """
        body = {"dataset": dataset, "workload": dict(workload), "epsilon": epsilon, **said(**options)}
        return WorkloadPlan.parse(self._json(json_call("POST", "/v1/plans", body, key=new_key())))

    def existing_release(self, id: str) -> Release:
        """A release that was asked for before."""
        reply = self._json(Call("GET", f"/v1/releases/{segment(id)}"))
        return Release(self._service.transport, ReleaseState.parse(reply))

    def releases(self) -> list[Release]:
        """The releases the caller may see, in the order they were asked for."""
        found = self._service.items("/v1/releases")
        return [Release(self._service.transport, ReleaseState.parse(item)) for item in found]

    # Audits of the service by itself

    def audit(self, session: str | None = None, *, checkpoint: bytes | None = None, key: str | None = None) -> Audit:
        """Have the service check its log and its transcripts, for auditors and admins; one audit at a time.

        It is the service's word about itself: :meth:`log` checks the same on your own machine.

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
        reply = self._json(json_call("POST", "/v1/audits", body, key=key or new_key()))
        return Audit(self._service.transport, AuditState.parse(reply))

    def existing_audit(self, id: str) -> Audit:
        """An audit that was asked for in the last day, by whomever."""
        reply = self._json(Call("GET", f"/v1/audits/{segment(id)}"))
        return Audit(self._service.transport, AuditState.parse(reply))

    def audits(self) -> list[AuditState]:
        """The audits of the last day, in the order they were asked for, without their results."""
        return [AuditState.parse(item) for item in self._service.items("/v1/audits")]

    # The service itself

    def forget_witness(self, name: str) -> None:
        """Forget the witness key of a principal, and what it has cosigned. For administrators."""
        self._send(Call("DELETE", f"/v1/log/witnesses/{segment(name)}"))

    @property
    def log_routes(self) -> LogRoutes:
        """The calls by which the log is read, for a witness and for whoever follows it in another way."""
        return self._service.log

    def log(self, folder: Path | str) -> Log:
        """The log of the service, as a folder keeps it. Needs the extra ``log``."""
        return Log(folder, self.log_routes)

    def transcript(
        self, id: str, path: Path | str, *, progress: Progress = False, most_bytes: int = MOST_TRANSCRIPT
    ) -> Path:
        """Download the transcript of a session or a release (NDJSON) to ``path``, which appears only once it is whole.
        An auditor may read any.

        Args:
            id: of the session or the release.
            path: where to write it.
            progress: called after each piece with the number of bytes so far, and None.
            most_bytes: that it may have.

        Raises:
            Refused: ``not-found`` when there is none that the caller may read.
            ProtocolError: when it has more than ``most_bytes``.
        """
        return self._service.log.transcript(id, path, downloading(progress), most_bytes=most_bytes)

    def call(self, method: str, path: str, body: JSON | None = None, *, key: str | None = None) -> JSON:
        """Call any route of the contract, such as one that this version has no method for.

        Args:
            method: of HTTP.
            path: from ``/v1`` on, with what stands behind a question mark.
            body: sent as JSON; nothing where it is left out.
            key: Idempotency-Key. What changes something and has none is not repeated once it was sent.

        Raises:
            ProtocolError: when the reply is no object.
            ValueError: when the path begins with anything but a slash: the key goes to no other address.
        """
        if not path.startswith("/") or path.startswith("//"):
            raise ValueError("a path begins with one slash, such as /v1/datasets")
        reply = self._send(json_call(method, path, body, key=key))
        found = reply.json() if reply.content else {}
        if not isinstance(found, dict):
            raise ProtocolError("the reply is no object")
        return found

    def healthy(self) -> bool:
        """Whether the service is alive."""
        return self._says_yes("/healthz")

    def ready(self) -> bool:
        """Whether the service is ready to answer."""
        return self._says_yes("/readyz")

    def metrics(self) -> str:
        """The service's metrics, in Prometheus' text format."""
        return (self._send(Call("GET", "/metrics"))).text

    def _says_yes(self, path: str) -> bool:
        try:
            self._send(Call("GET", path))
        except Refused:
            return False
        return True

    def _json(self, call: Call) -> Any:
        return self._service.transport.json(call)

    def _send(self, call: Call) -> Reply:
        return self._service.transport.send(call)

    def _described(self, reply: JSON) -> Dataset:
        return Dataset.parse(reply, _service=self._service)
