"""Every route of the contract as a method: :class:`Curator` for the service, :class:`Session` for one
session.
"""

from __future__ import annotations

import io
import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa

from app.client.errors import NotVerified, Problem, ProtocolError
from app.client.models import (
    JSON,
    Answer,
    Comparison,
    Dataset,
    Hypothesis,
    Ledger,
    Plan,
    Principal,
    SessionState,
    need,
)
from app.client.queries import Dense, QueryLike
from app.client.transport import Call, Transport

NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
#: What may be registered: a file, an open file's bytes, or an array of counts.
Data = Path | str | bytes | np.ndarray[Any, Any]
#: Items that are asked for at a time.
PAGE = 1000
Number = Any  # int, float or Decimal: whatever states an amount


def _segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _json_call(method: str, path: str, body: object = None, *, key: str | None = None) -> Call:
    if body is None:
        return Call(method, path, key=key)
    content = json.dumps(body, allow_nan=False, default=_number).encode()
    return Call(method, path, {"Content-Type": "application/json"}, lambda: {"content": content}, key)


def _number(value: object) -> object:
    """Decimals as JSON numbers and NumPy's values as Python's; a TypeError for anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value)  # type: ignore[arg-type]


def _list(page: JSON, name: str) -> list[Any]:
    items = need(page, name)
    if not isinstance(items, list):
        raise ProtocolError(f"{name} is not a list")
    return items


def _new_key() -> str:
    return str(uuid.uuid4())


class Curator:
    """The service at ``base_url``, called with ``api_key``.

    Calls that fail on the way are tried again for up to ``retry_for`` seconds where that is safe: sessions,
    queries, batches and closings carry an ``Idempotency-Key``, so a repeat is answered by the first reply and
    charges nothing more. Not to be shared between threads that ask in one session: order matters there.

    Every method raises :class:`~app.client.errors.Problem` when the service refuses,
    :class:`~app.client.errors.Unreachable` when no reply comes and :class:`~app.client.errors.ProtocolError`
    when the reply is none of the contract's.
    """

    def __init__(
        self, base_url: str, api_key: str | None = None, *, timeout: float = 60.0, retry_for: float = 60.0
    ) -> None:
        self._transport = Transport(base_url, api_key, timeout=timeout, retry_for=retry_for)

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
        """Name somebody who may call, as admin, analyst or auditor. The reply's key is told this once."""
        return Principal.parse(self._transport.json(_json_call("POST", "/v1/principals", {"name": name, "role": role})))

    def rotate_key(self, name: str) -> Principal:
        """Replace a principal's key, also a revoked one; the reply's key is told this once."""
        return Principal.parse(self._transport.json(Call("POST", f"/v1/principals/{_segment(name)}/key")))

    def revoke_principal(self, name: str) -> None:
        """Revoke a principal's key for good; the name is never given to anybody else."""
        self._transport.send(Call("DELETE", f"/v1/principals/{_segment(name)}"))

    # Data sets

    def register(self, spec: JSON, data: Data, *, filename: str | None = None) -> Dataset:
        """Register a data set: its declaration and its private data.

        Args:
            spec: the declaration, as the contract has it.
            data: a path; the bytes of a file, with ``filename`` telling the format by its ending; or an array
                of counts, sent as ``.npy``.
            filename: name told to the service, for its ending; taken from the path where there is one.
        """
        if isinstance(data, np.ndarray):
            buffer = io.BytesIO()
            np.save(buffer, data, allow_pickle=False)
            data, filename = buffer.getvalue(), filename or "data.npy"
        if isinstance(data, bytes) and filename is None:
            raise ValueError("filename is needed with bytes: its ending tells the format")
        form = {"spec": json.dumps(spec, allow_nan=False, default=_number)}
        with ExitStack() as files:

            def content() -> dict[str, Any]:
                if isinstance(data, bytes):
                    return {"data": form, "files": {"data": (filename, data)}}
                path = Path(os.fspath(data))
                return {
                    "data": form,
                    "files": {"data": (filename or path.name, files.enter_context(path.open("rb")))},
                }

            return Dataset.parse(self._transport.json(Call("POST", "/v1/datasets", content=content)))

    def datasets(self) -> list[Dataset]:
        """Public descriptors of all data sets."""
        return [Dataset.parse(item) for item in self._items("/v1/datasets")]

    def dataset(self, name: str) -> Dataset:
        """The public descriptor of one data set."""
        return Dataset.parse(self._transport.json(Call("GET", f"/v1/datasets/{_segment(name)}")))

    def grant(self, dataset: str, principal: str, epsilon: Number) -> JSON:
        """Cap an analyst's share of a data set's epsilon; where access is by grant, also let them in."""
        path = f"/v1/datasets/{_segment(dataset)}/grants/{_segment(principal)}"
        response = self._transport.send(_json_call("PUT", path, {"epsilon": epsilon}))
        return dict(json.loads(response.content)) if response.content else {}

    def ledger(self, dataset: str) -> Ledger:
        """The account of a data set."""
        entries: list[Any] = []
        for page in self._pages(f"/v1/datasets/{_segment(dataset)}/ledger"):
            entries += _list(page, "entries")
        return Ledger.parse({**page, "entries": entries})

    def retire(self, dataset: str) -> None:
        """Destroy a data set's private file; its public records stay, its name is never used again."""
        self._transport.send(Call("DELETE", f"/v1/datasets/{_segment(dataset)}"))

    # Plans and sessions

    def plan(self, dataset: str, mechanism: JSON, *, epsilon: Number, max_queries: int, **options: Any) -> Plan:
        """What a session would promise and cost; charges nothing. ``options`` as for :meth:`open_session`."""
        # A plan changes nothing, so its call may be repeated: the key only says so to the transport.
        body = _opening(dataset, mechanism, epsilon, max_queries, options)
        return Plan.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def compare(
        self, dataset: str, mechanisms: Sequence[JSON], *, epsilon: Number, max_queries: int, **options: Any
    ) -> Comparison:
        """The plans of several mechanisms for one task, side by side; charges nothing.

        ``options`` as for :meth:`open_session`. A mechanism that has no plan gives its Problem in its place.
        """
        body = _opening(dataset, {}, epsilon, max_queries, options)
        del body["mechanism"]
        body["mechanisms"] = [dict(mechanism) for mechanism in mechanisms]
        return Comparison.parse(self._transport.json(_json_call("POST", "/v1/plans", body, key=_new_key())))

    def open_session(
        self,
        dataset: str,
        mechanism: JSON,
        *,
        epsilon: Number,
        max_queries: int,
        key: str | None = None,
        **options: Any,
    ) -> Session:
        """Open a session, reserving ``epsilon`` of the data set's epsilon for it.

        Args:
            dataset: name of the data set.
            mechanism: ``{"construction": "mw"}``, ``{"construction": "md", "potential": "lp", "p": 1.5}``,
            ...
            epsilon: the share of the data set's epsilon that the session may spend.
            max_queries: the most queries the session will answer; its bound holds for all of them together.
            key: Idempotency-Key, where a caller wants to repeat the call from another process; made here
            otherwise.
            **options: ``beta``, ``max_updates``, ``calibration``, ``release``, as in the
            contract.
        """
        call = _json_call(
            "POST", "/v1/sessions", _opening(dataset, mechanism, epsilon, max_queries, options), key=key or _new_key()
        )
        return Session(self._transport, SessionState.parse(self._transport.json(call)))

    def session(self, id: str) -> Session:
        """An existing session."""
        return Session(self._transport, SessionState.parse(self._transport.json(Call("GET", _session_path(id)))))

    def sessions(self) -> list[SessionState]:
        """The sessions the caller may see."""
        return [SessionState.parse(item) for item in self._items("/v1/sessions")]

    # The service itself

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
        """All of a list."""
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
            # A page is asked for with the key, which is for this service alone.
            if following is not None and not (isinstance(following, str) and following.startswith(f"{path}?")):
                raise ProtocolError("the next page is of something else")

    def _says_yes(self, path: str) -> bool:
        try:
            self._transport.send(Call("GET", path))
        except Problem:
            return False
        return True


def _opening(
    dataset: str, mechanism: JSON, epsilon: Number, max_queries: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a session or plan, without the options that are None: those the service chooses."""
    given = {name: value for name, value in options.items() if value is not None}
    return {
        "dataset": dataset,
        "mechanism": dict(mechanism),
        "epsilon": epsilon,
        "max_queries": max_queries,
        **given,
    }


def _session_path(id: str) -> str:
    return f"/v1/sessions/{_segment(id)}"


class Session:
    """One session. As a context manager it is closed at the end, which returns what it did not spend.

    ``seen`` is the newest place in the transcript's chain that a reply has told: the number of entries and the hash of
    the last. :meth:`verify` finds it in the transcript; whoever keeps it elsewhere can give it to
    ``curator audit replay`` as ``--entries`` and ``--head``.
    """

    def __init__(self, transport: Transport, opened: SessionState) -> None:
        self._transport = transport
        self._path = _session_path(opened.id)
        self.opened = opened
        self.seen: tuple[int, str] | None = None
        self._see(opened.sequence, opened.head_hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.id!r}, dataset={self.opened.dataset!r})"

    @property
    def id(self) -> str:
        """The session's identifier."""
        return self.opened.id

    @property
    def plan(self) -> Plan:
        """What the session promises and costs at most."""
        return self.opened.plan

    def state(self) -> SessionState:
        """Where the session stands now."""
        return self._seen_in(SessionState.parse(self._transport.json(Call("GET", self._path))))

    def _see(self, sequence: int | None, head: str | None) -> None:
        """Keep what a reply told of the chain, unless it is older: a repeated call gets an old reply."""
        if sequence is not None and head is not None and (self.seen is None or sequence > self.seen[0]):
            self.seen = sequence, head

    def _seen_in(self, state: SessionState) -> SessionState:
        self._see(state.sequence, state.head_hash)
        return state

    def _answered(self, reply: JSON) -> Answer:
        answer = Answer.parse(reply)
        self._see(answer.sequence, answer.entry_hash)
        return answer

    def ask(self, query: QueryLike, *, key: str | None = None) -> Answer:
        """Answer one query. ``key``: as in :meth:`Curator.open_session`."""
        key = key or _new_key()
        path = f"{self._path}/queries"
        if isinstance(query, Dense):
            body = query.body()
            call = Call("POST", path, {"Content-Type": NPY}, lambda: {"content": body}, key)
        else:
            call = _json_call("POST", path, dict(query), key=key)
        return self._answered(self._transport.json(call))

    def ask_mean(self, query: QueryLike, over: float, *, key: str | None = None) -> Answer:
        """Ask a sum and get a mean: value and error bound are divided by ``over``; ``raw`` is the sum's reply.

        The noise of an answer is the same whatever a query's weights. A mean asked with weights of ``1/over`` has the
        whole error bound; asked as a sum, with weights up to 1, it has one that is ``over`` times smaller::

            session.ask_mean(cut(users, films), over=len(users) * len(films))

        Args:
            query: the sum.
            over: how many cells or records it is a sum of, where that is known, or any other positive number.
            key: as in :meth:`Curator.open_session`.
        """
        if not 0 < over < math.inf:
            raise ValueError("over is a positive number")
        answer = self.ask(query, key=key)
        bound = None if answer.error_bound is None else answer.error_bound / over
        return replace(answer, value=answer.value / over, error_bound=bound)

    def ask_many(
        self,
        queries: Iterable[QueryLike],
        *,
        batch_size: int = 256,
        progress: Callable[[int], None] | None = None,
    ) -> list[Answer | Problem]:
        """Answer queries in order, a batch of ``batch_size`` a call.

        A refused query gives its Problem in its place.

        Args:
            queries: the queries; taken from the iterable a batch at a time.
            batch_size: most queries a call.
            progress: called with the number of answers so far after each batch.
        """
        answers: list[Answer | Problem] = []
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

    def _batch(self, batch: Sequence[Mapping[str, Any]]) -> list[Answer | Problem]:
        call = _json_call("POST", f"{self._path}/queries/batch", {"queries": batch}, key=_new_key())
        items = need(self._transport.json(call), "answers")
        if not isinstance(items, list) or len(items) != len(batch):
            raise ProtocolError("the batch has not as many answers as queries")
        return [
            self._answered(item) if "sequence" in item else Problem.parse(item, int(item.get("status", 0)))
            for item in items
        ]

    def close(self, *, key: str | None = None) -> SessionState:
        """Close the session; what it reserved and did not spend returns to the data set."""
        reply = self._transport.json(_json_call("POST", f"{self._path}/close", key=key or _new_key()))
        return self._seen_in(SessionState.parse(reply))

    def transcript(self, path: Path | str, *, progress: Callable[[int], None] | None = None) -> Path:
        """Download the transcript (NDJSON) to ``path``, which appears only once it is whole.

        Args:
            path: where to write it.
            progress: called with the number of bytes so far after each piece.
        """
        target = Path(path)
        part = target.with_name(f".{target.name}.part")

        def write(response: httpx.Response) -> None:
            with part.open("wb") as file:
                for piece in response.iter_bytes():
                    file.write(piece)
                    if progress is not None:
                        progress(file.tell())

        try:
            self._transport.consume(Call("GET", f"{self._path}/transcript"), write)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def verify(self, *, memory_limit: int | None = None) -> JSON:
        """Download the transcript, replay it here, and find in it the newest entry that this client was told of.

        So everything up to there is what it was when it was answered: nothing is cut off, rewritten or timed anew.
        What stands after it, such as the entries of another client, is only known to replay.

        Args:
            memory_limit: most bytes that the replay may hold; 4 GiB where nothing is given.

        Returns:
            What the replay found: entries, updates, what was spent, and so on.

        Raises:
            NotVerified: when the transcript does not replay, is another session's, or lacks that entry.
        """
        # The audit computes plans and hypotheses: whoever only asks need not load what that takes.
        from app.audit.replay import MEMORY_LIMIT, replay_file

        entries, head = (None, None) if self.seen is None else self.seen
        limit = MEMORY_LIMIT if memory_limit is None else memory_limit
        with TemporaryDirectory(prefix="curator-") as folder:
            path = self.transcript(Path(folder) / "transcript.ndjson")
            verdict = replay_file(path, head=head, entries=entries, memory_limit=limit)
        if not verdict.ok:
            where = "" if verdict.sequence is None else f"entry {verdict.sequence}: "
            raise NotVerified(f"the transcript of session {self.id}: {where}{verdict.problem}")
        if verdict.summary["session"] != self.id:
            raise NotVerified(f"the transcript is not that of session {self.id}")
        return verdict.summary

    def hypothesis(self) -> Hypothesis:
        """The public hypothesis as an array in the shape of the data set's space."""
        response = self._transport.send(Call("GET", f"{self._path}/hypothesis", {"Accept": NPY}))
        try:
            array = np.load(io.BytesIO(response.content), allow_pickle=False)
        except ValueError:
            raise ProtocolError("the hypothesis is not an array") from None
        return Hypothesis(np.asarray(array, dtype=np.float64), _updates(response))

    def hypothesis_table(self) -> pa.Table:
        """The public hypothesis as a table with named columns (synthetic data)."""
        response = self._transport.send(Call("GET", f"{self._path}/hypothesis", {"Accept": ARROW}))
        with pa.ipc.open_stream(response.content) as reader:
            return reader.read_all()

    def save_hypothesis(self, path: Path | str) -> Path:
        """Write the public hypothesis to ``path`` as Parquet (``.npy`` or ``.arrow`` by the ending)."""
        target = Path(path)
        accept = {".npy": NPY, ".arrow": ARROW}.get(target.suffix, PARQUET)
        target.write_bytes(self._transport.send(Call("GET", f"{self._path}/hypothesis", {"Accept": accept})).content)
        return target


def _updates(response: httpx.Response) -> int | None:
    """The number of updates the hypothesis stands at, told in a header; None where it is not told."""
    value = response.headers.get("Curator-Updates", "")
    return int(value) if value.isdigit() else None
