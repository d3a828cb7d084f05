# Made of _async/session.py by make_sync.py: change that.

"""A session: questions asked and answered, what is behind the answers, and how all of it is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload
from urllib.parse import urlencode

from curator_client import questions, transcripts
from curator_client._sync.log import Log
from curator_client._sync.seen_log import SeenLog
from curator_client._sync.waiting import Lock, apart
from curator_client.answers import Answer, Table, parse_answer
from curator_client.calls import MOST_DATA, MOST_TRANSCRIPT, Call, Reply
from curator_client.conditions import Condition
from curator_client.errors import (
    BatchFailed,
    CuratorError,
    NotVerified,
    ProtocolError,
    Refused,
    SessionClosed,
    SqlRefused,
    refusal,
)
from curator_client.extras import extra, server
from curator_client.models import Hypothesis, Plan, SessionState, need
from curator_client.progress import Progress, downloading, heard_by
from curator_client.questions import (
    Bins,
    By,
    Dense,
    Grouped,
    Groups,
    Nodes,
    Question,
    Records,
    Selection,
    Side,
    asked,
    chosen,
    where,
)
from curator_client.requests import ARROW, NPY, PARQUET, json_call, new_key, said, session_path
from curator_client.results import Price, SqlResult
from curator_client.seen import SeenEntries
from curator_client.tables import array, frame
from curator_client.verdict import Verdict

if TYPE_CHECKING:
    import pandas

    from curator_client._sync.http import Transport

A = TypeVar("A", bound="Answer | Table")


def _of(by: By | None, bins: Bins | None, where: Records | None) -> Selection | Grouped:
    """The records that a statistic is of, by groups where there are any."""
    of = chosen(where)
    if by is None:
        if bins is not None:
            raise ValueError("bins are of attributes in by")
        return of
    return of.by(*([by] if isinstance(by, str) else by), bins=bins)


class Session:
    """One session. As a context manager it is closed at the end, which returns what it did not spend.

    Questions go one after another, whoever asks them, in the order in which they were asked for. Whoever gives one up
    while it is on its way may have paid for it: asked again with the same ``key`` it is answered as it was.

    Attributes:
        opened: the session's state when this object was made.
        told: every entry that a reply has told of, in little room, for :meth:`verify`.
    """

    def __init__(self, transport: Transport, seen_log: SeenLog, opened: SessionState) -> None:
        self._transport, self._seen_log = transport, seen_log
        self._path = session_path(opened.id)
        self.opened = opened
        self.told = SeenEntries()
        self._head: tuple[int, str] | None = None
        self._turn = Lock()
        self._saw(opened.sequence, opened.head_hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(SessionClosed):
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

    @property
    def head(self) -> tuple[int, str] | None:
        """The newest entry that was told: its number and its hash. Kept elsewhere, it shows what the session was until
        then, to :func:`curator_client.replay` and as ``--entries`` and ``--head`` of ``curator audit replay``.
        """
        return self._head

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
        if self._head is None or sequence > self._head[0]:
            self._head = sequence, head

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
        wanted = said(within=within, confidence=confidence, adaptive=adaptive or None, at_most=at_most)
        path, question = f"{self._path}/queries", asked(question)
        if isinstance(question, Dense):
            body = question.npy()
            words = urlencode({name: json.dumps(value) for name, value in wanted.items()})
            address = f"{path}?{words}" if words else path
            call = Call("POST", address, {"Content-Type": NPY}, lambda: {"content": body}, key or new_key())
        else:
            call = json_call("POST", path, {**question.json, **wanted}, key=key or new_key())
        with self._turn:
            return self._answered(self._transport.json(call), question)

    def price(self, question: Question[Any], *, within: float | None = None, confidence: float | None = None) -> Price:
        """What a question would cost and tell, from public things alone. Nothing is asked, recorded or charged.

        Args:
            question: what would be asked.
            within: as for :meth:`ask`.
            confidence: as for :meth:`ask`.
        """
        body = {**asked(question).json, **said(within=within, confidence=confidence)}
        # It changes nothing to ask again. The key tells the transport so; the service ignores it.
        return Price(self._transport.json(json_call("POST", f"{self._path}/price", body, key=new_key())))

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
        body = {"statement": statement, **said(at_most=at_most)}
        call = json_call("POST", f"{self._path}/sql", body, key=key or new_key())
        with self._turn:
            try:
                result = SqlResult(self._transport.json(call))
            except SqlRefused as refused:
                refused.statement = statement
                raise
            for answer in result.answers:
                self._saw(answer.sequence, answer.entry_hash, answer if isinstance(answer, Answer) else None)
        return result

    def count(
        self, *conditions: Condition, within: float | None = None, adaptive: bool = False, **by_name: Any
    ) -> Answer:
        """How many records satisfy all of some conditions, as for :func:`curator_client.where`, such as
        ``session.count(col("hrwage") >= 20, age=(None, 35))``.
        """
        return self.ask(where(*conditions, **by_name).count(), within=within, adaptive=adaptive)

    def group_by(
        self, *names: str, bins: Bins | None = None, where: Records | None = None, within: float | None = None
    ) -> Table:
        """Counts for each combination of values of some attributes: one question and one charge::

            print(session.group_by("age", "sex", bins={"age": [15, 30, 45, 60, 95]}, where=where(workclass=3)))

        Args:
            names: attributes, in the order of the table's axes.
            bins: for some of them the edges of coarser bins, or groups of values that are counted as one, by name.
            where: the records; all where it is left out.
            within: as for :meth:`ask`, of every cell.
        """
        return self.ask(chosen(where).by(*names, bins=bins).count(), within=within)

    def crosstab(self, rows: str, columns: str, *, bins: Bins | None = None, where: Records | None = None) -> Table:
        """Counts by two attributes, as :meth:`group_by`."""
        return self.group_by(rows, columns, bins=bins, where=where)

    def histogram(self, of: str, *, bins: Iterable[Any] | None = None, where: Records | None = None) -> Table:
        """Counts by one attribute, in bins with these edges, as :meth:`group_by`."""
        return self.group_by(of, bins=None if bins is None else {of: bins}, where=where)

    @overload
    def sum(self, of: str, *, where: Records | None = None, within: float | None = None) -> Answer: ...
    @overload
    def sum(
        self, of: str, *, by: By, bins: Bins | None = None, where: Records | None = None, within: float | None = None
    ) -> Table: ...
    def sum(
        self,
        of: str,
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Records | None = None,
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
    def mean(self, of: str, *, where: Records | None = None, within: float | None = None) -> Answer: ...
    @overload
    def mean(
        self, of: str, *, by: By, bins: Bins | None = None, where: Records | None = None, within: float | None = None
    ) -> Table: ...
    def mean(
        self,
        of: str,
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Records | None = None,
        within: float | None = None,
    ) -> Answer | Table:
        """The mean of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._of_statistic(_of(by, bins, where).mean(of), within=within)

    @overload
    def variance(self, of: str, *, where: Records | None = None, within: float | None = None) -> Answer: ...
    @overload
    def variance(
        self, of: str, *, by: By, bins: Bins | None = None, where: Records | None = None, within: float | None = None
    ) -> Table: ...
    def variance(
        self,
        of: str,
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Records | None = None,
        within: float | None = None,
    ) -> Answer | Table:
        """The variance of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._of_statistic(_of(by, bins, where).variance(of), within=within)

    @overload
    def median(self, of: str, *, where: Records | None = None) -> Answer: ...
    @overload
    def median(self, of: str, *, by: By, bins: Bins | None = None, where: Records | None = None) -> Table: ...
    def median(
        self, of: str, *, by: By | None = None, bins: Bins | None = None, where: Records | None = None
    ) -> Answer | Table:
        """The median of an attribute that is declared with a grid, as for :meth:`sum`."""
        return self._of_statistic(_of(by, bins, where).median(of))

    @overload
    def quantile(self, of: str, q: float, *, where: Records | None = None) -> Answer: ...
    @overload
    def quantile(self, of: str, q: Sequence[float], *, where: Records | None = None) -> Table: ...
    @overload
    def quantile(
        self, of: str, q: float | Sequence[float], *, by: By, bins: Bins | None = None, where: Records | None = None
    ) -> Table: ...
    def quantile(
        self,
        of: str,
        q: float | Sequence[float],
        *,
        by: By | None = None,
        bins: Bins | None = None,
        where: Records | None = None,
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
        """The edges between groups of nodes, or sums of a matrix' entries, as :func:`curator_client.blocks`, such as
        ``print(session.blocks({"red": [0, 1, 2], "blue": [3, 4]}))``.
        """
        return self.ask(questions.blocks(left, right, only=only))

    def degrees(self, side: Side | None = None, *, bins: Iterable[int] | None = None) -> Table:
        """How many nodes of a graph have a degree in each bin, as :func:`curator_client.degrees`, such as
        ``print(session.degrees("out", bins=[0, 1, 2, 5, 10]))``.
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
        key: str | None = None,
        on_error: Literal["raise"] = "raise",
    ) -> list[A]: ...
    @overload
    def ask_many(
        self,
        questions: Iterable[Question[A]],
        *,
        progress: Progress = False,
        batch_size: int = 256,
        key: str | None = None,
        on_error: Literal["return"],
    ) -> list[A | Refused]: ...
    def ask_many(
        self,
        questions: Iterable[Question[A]],
        *,
        progress: Progress = False,
        batch_size: int = 256,
        key: str | None = None,
        on_error: Literal["raise", "return"] = "raise",
    ) -> Any:
        """Answer questions in order, in batches.

        Args:
            questions: what is asked; taken from the iterable a batch at a time.
            progress: called after each batch with the number of answers so far and of all, None where that is not
                known; True shows them as a line on standard error, where that is a terminal.
            batch_size: most questions of a batch.
            key: of the whole: asked anew under it, in batches as large, what was answered is told again and paid once.
            on_error: ``return`` gives refusals in their places.

        Raises:
            BatchFailed: when a question was refused; the answers stand in its ``results``, the paid ones too.
            CuratorError: when a batch has no reply; the answers before it stand in its ``results``.
        """
        show = heard_by(progress)
        all_of_them = len(questions) if isinstance(questions, Sized) else None
        results: list[A | Refused] = []
        left = iter(questions)
        while batch := list(map(asked, islice(left, batch_size))):
            try:
                results += self._batch(batch, new_key() if key is None else f"{key}-{len(results)}")
            except CuratorError as error:
                error.results = cast("list[Answer | Table | Refused]", results)
                raise
            if show is not None:
                show(len(results), all_of_them)
        if on_error == "raise" and any(isinstance(each, Refused) for each in results):
            raise BatchFailed(cast("list[Answer | Table | Refused]", results))
        return results

    def _batch(self, batch: Sequence[Question[A]], key: str) -> list[A | Refused]:
        body = {"queries": [question.json for question in batch]}
        call = json_call("POST", f"{self._path}/queries/batch", body, key=key)
        with self._turn:
            items = need(self._transport.json(call), "answers")
            if not isinstance(items, list) or len(items) != len(batch):
                raise ProtocolError("the batch has not as many answers as questions")
            return [
                self._answered(item, question) if "sequence" in item else refusal(item, int(item.get("status", 0)))
                for item, question in zip(items, batch, strict=True)
            ]

    def close(self, *, key: str | None = None) -> SessionState:
        """Close the session; what it reserved and did not spend returns to the data set."""
        call = json_call("POST", f"{self._path}/close", key=key or new_key())
        with self._turn:
            return self._seen_in(SessionState.parse(self._transport.json(call)))

    def transcript(self, path: Path | str, *, progress: Progress = False, most_bytes: int = MOST_TRANSCRIPT) -> Path:
        """Download the transcript (NDJSON) to ``path``, which appears only once it is whole.

        Args:
            path: where to write it.
            progress: called after each piece with the number of bytes so far, and None.
            most_bytes: that it may have.

        Raises:
            ProtocolError: when it has more.
        """
        target = Path(path)
        call = Call("GET", f"{self._path}/transcript", most=most_bytes)
        self._transport.download(call, target, downloading(progress))
        return target

    def verify(
        self,
        *,
        log: Log | Path | str | Literal[True] | None = None,
        replay: bool = False,
        progress: Progress = False,
        memory_limit: int | None = None,
    ) -> Verdict:
        """Download the transcript, and check that its chain of hashes holds and that every entry this client was told
        of is in it, as it was told.

        Then everything up to the newest of them is as it was when it was answered: nothing was removed, rewritten or
        given another time.

        Args:
            log: a folder in which the log is kept, as an auditor keeps one: then the whole transcript must be what the
                log has of the session. True looks as far as any caller may: the checkpoint that is shown now must
                follow on those that were shown to this client before, which tells nothing of the session's records.
                Needs the extra ``log``.
            replay: whether to replay it, too: that plans, prices, noise scales and free answers follow. Needs the extra
                ``replay``.
            progress: of the replay: hears of bytes read and of bytes in all.
            memory_limit: most bytes that the replay may hold; 4 GiB by default.

        Returns:
            What was checked, and what was not. ``summary`` has ``session``, ``entries``, ``head_hash`` and ``status``;
            with ``replay`` what it found: updates, what was spent, and so on; and where one was asked for ``log``.

        Raises:
            MissingExtra: without an extra that is needed; nothing is left out silently.
            NotVerified: when the transcript's chain breaks or it does not replay, is another session's, lacks an entry
                that was told of or has another in its place, or is not what the log has.
            Contradicted: when the log is not what it was, or not what was signed.
            app.audit.failures.Undecided: when the replay itself fails, which is no verdict.
        """
        if replay:  # before anything is downloaded
            server("verifying.transcript")
        if log is not None:
            extra("log", "cryptography")
        kept = log if log is None or log is True or isinstance(log, Log) else Log(log)
        if self.opened.dummy and isinstance(kept, Log):
            raise NotVerified("a session on made-up records is in no log")
        with TemporaryDirectory(prefix="curator-") as folder:
            path = self.transcript(Path(folder) / "transcript.ndjson")
            checks = transcripts.Checks(self.id, self._head, self.told)
            apart(checks.look, path)
            if replay:
                apart(checks.replay, path, heard_by(progress), memory_limit)
            if isinstance(kept, Log):
                checks.found(kept.verify(path))
            elif kept:
                checks.shown(self._seen_log.look())
        return checks.verdict()

    def hypothesis(self) -> pandas.DataFrame:
        """The public hypothesis as a frame, a row a cell: synthetic data. Attributes are columns of codes, the places
        of values in the declaration. Needs the extras ``pandas`` and ``arrow``."""
        return frame((self._hypothesis(ARROW)).content)

    def hypothesis_array(self) -> Hypothesis:
        """The public hypothesis as an array in the shape of the data set's space. Needs NumPy."""
        reply = self._hypothesis(NPY)
        return Hypothesis.parse(array(reply.content), reply)

    def save_hypothesis(self, path: Path | str) -> Path:
        """Write the public hypothesis to ``path`` as Parquet (``.npy`` or ``.arrow`` by the ending)."""
        target = Path(path)
        accept = {".npy": NPY, ".arrow": ARROW}.get(target.suffix, PARQUET)
        target.write_bytes((self._hypothesis(accept)).content)
        return target

    def _hypothesis(self, accept: str) -> Reply:
        return self._transport.send(Call("GET", f"{self._path}/hypothesis", {"Accept": accept}, most=MOST_DATA))
