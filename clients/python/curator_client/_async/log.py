"""A service's log followed into a folder, and what is found of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from curator_client import log_verdicts
from curator_client._async.log_routes import LogRoutes
from curator_client._async.waiting import apart
from curator_client.errors import Contradicted, ProtocolError, Refused
from curator_client.extras import extra
from curator_client.frontier import Reached
from curator_client.log_folder import LogFolder, whole_lines
from curator_client.progress import Progress, heard_by
from curator_client.proofs import records
from curator_client.proofs.follower import Follower, LinesRefused, LogForked, LogShrank
from curator_client.proofs.notes import Checkpoint, NoteRefused, Verifier
from curator_client.quorum import Quorum
from curator_client.verdict import Fetched, Verdict

#: Bytes that a fetch may add to a log, and those of all transcripts that it writes, unless more is allowed.
MOST_BYTES = 1 << 34


class AsyncLog:
    """A folder that keeps the signed log, and transcripts beside it. Nobody else writes to it. Needs the extra ``log``.

    :meth:`AsyncCurator.log` gives one that fetches; without a service everything else is there::

        log = AsyncLog("LOG")

    Args:
        folder: where it is kept; :meth:`fetch` makes it.
        routes: the service's log, None where nothing is fetched.

    Raises:
        MissingExtra: without the extra.
    """

    def __init__(self, folder: Path | str, routes: LogRoutes | None = None) -> None:
        extra("log", "cryptography")
        self._folder, self._routes = LogFolder(folder), routes

    def __repr__(self) -> str:
        return f"AsyncLog({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return self._folder.path

    async def fetch(
        self,
        *,
        transcripts: bool = True,
        witnesses: Sequence[str] = (),
        need: int | None = None,
        max_age: float | None = None,
        progress: Progress = False,
        most_bytes: int = MOST_BYTES,
    ) -> Fetched:
        """Bring the folder up to date, and tell the size of the log that was verified.

        Args:
            transcripts: whether to download those of sessions and releases, too, of which the log has more than it had.
            witnesses: public keys of witnesses, each NAME+HASH+KEY, known by another way than from the service. Nothing
                is taken that does not begin with what enough of them have cosigned.
            need: how many of them are enough; all, when it is left out.
            max_age: seconds that their cosignatures may lie back.
            progress: hears of entries that the folder has, and of all.
            most_bytes: that may be added to the log, and that transcripts may have together.

        Raises:
            ProtocolError: when more than that comes, or a transcript has more than it can have by the log: its lines
                are those of the log, what came into it since, and dense weights where one of them names some.
            NotVerified: when too few witnesses have cosigned what is shown. The folder is what it was.
            ValueError: when a witness' key is none, more are needed than are named, or there is no service to ask.
            Contradicted: when the log shrank or was forked since, is signed with another key, or its lines are not
                those that were signed. The folder is what it was.
        """
        routes = self._asked()
        quorum = Quorum.of(witnesses, need, max_age)
        folder = self._folder
        folder.path.mkdir(parents=True, exist_ok=True)
        try:
            state = folder.state() if folder.is_kept else Follower(Verifier.parse(await routes.key()))
            cosigned = None if quorum is None else await routes.cosigned(quorum)
            note = await routes.checkpoint()
            state = await routes.known(state, note)
            try:
                found, reached = await self._follow(routes, state, note, most_bytes, heard_by(progress))
                if cosigned is not None:
                    told = state.verifier.checkpoint(cosigned)
                    folder.write("witnessed", cosigned)
                    await routes.check_connected(state.verifier, told, found)
            except (LogShrank, LogForked):
                folder.write("refused", note)
                raise
        except (LogShrank, LogForked, LinesRefused, NoteRefused) as error:
            raise Contradicted(str(error)) from None
        folder.keep(state, note, reached)
        written, refused = await self._fetch_transcripts(routes, most_bytes) if transcripts else (0, ())
        return Fetched.of(found, written, refused)

    async def verify(self, transcript: Path | str) -> Verdict:
        """Check that a transcript is what the log says of its session, as far as it is kept: that its lines are there
        and no more entries of it, and that it is open or closed as the transcript says.

        Raises:
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept, or the log as far as it is kept says something else.
        """
        return await apart(log_verdicts.verified, self._folder, transcript)

    async def compare(self, other: Path | str) -> Verdict:
        """Check that the log here and what another auditor has seen are one.

        Args:
            other: the other's folder, or only the ``checkpoint`` from it.

        Raises:
            Contradicted: when they are two histories, with the size up to which they are signed, and where lines are
                there the first that differs. Both signed notes are kept in the folder, below ``forked``.
            NotVerified: when nothing is kept, the other has seen more and does not show it, or shows what is not signed
                with a key that is known here, as anybody could have done.
        """
        return await apart(log_verdicts.compared, self._folder, Path(other))

    async def check_file(self, dataset: str, file: Path | str, key: str) -> Verdict:
        """Check that a file is the one that a data set was registered with.

        Args:
            dataset: its name.
            file: the file.
            key: of its commitment, 64 hexadecimal digits, as :meth:`AsyncCurator.reveal_commitment` tells it.

        Raises:
            ValueError: when the key is none.
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept, no such data set was registered, or none with a commitment, as far as
                the log is kept, or it was another file or another key.
        """
        return await apart(log_verdicts.file_checked, self._folder, dataset, file, key)

    async def replay(self, *, progress: Progress = False, memory_limit: int | None = None) -> Verdict:
        """Replay all that is kept: the log, the books of all data sets, every transcript. Needs the extra ``replay``.

        Args:
            progress: hears of bytes read, and of bytes to read in all.
            memory_limit: most bytes that the replay of one transcript may hold; 4 GiB by default.

        Raises:
            MissingExtra: without the extra.
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept, or something does not follow: the first, and where it is.
            app.audit.failures.Undecided: when a replay itself fails, which is no verdict.
        """
        return await apart(partial(log_verdicts.replayed, self._folder, heard_by(progress), memory_limit))

    async def report(
        self,
        *,
        html: Path | str | None = None,
        json: Path | str | None = None,
        replay: bool = False,
        earlier: Path | str | None = None,
        memory_limit: int | None = None,
    ) -> Verdict:
        """Report what the log says: budgets, questions, releases, and whether all of it follows. Needs the extra
        ``replay``. Files are written also of what does not hold, and say so at the top.

        Args:
            html: where to write a page.
            json: where to write the same as JSON.
            replay: whether to replay the transcripts, too, as :meth:`replay` does.
            earlier: a file with a signed checkpoint that was kept elsewhere, which the log is to begin with.
            memory_limit: most bytes that the replay of one transcript may hold; 4 GiB by default.

        Raises:
            MissingExtra: without the extra.
            Contradicted: when the folder's lines are not those that were signed, or two histories were.
            NotVerified: when nothing is kept, the earlier checkpoint is none of the log's, or something does not
                follow.
            app.audit.failures.Undecided: when a replay itself fails, which is no verdict.
        """
        files = (html, json)
        return await apart(partial(log_verdicts.reported, self._folder, *files, replay, earlier, memory_limit))

    def _asked(self) -> LogRoutes:
        if self._routes is None:
            raise ValueError("a log is fetched from a service: AsyncCurator.log(folder) has one")
        return self._routes

    async def _follow(
        self,
        routes: LogRoutes,
        state: Follower,
        note: bytes,
        most_bytes: int,
        show: Callable[[int, int | None], None] | None,
    ) -> tuple[Checkpoint, Reached]:
        """The checkpoint of a note, once the folder has all of its lines, and how far these were read."""
        found = state.look(note)
        before = state.seen.size if state.seen is not None else 0
        if 0 < before < found.size:
            state.check_growth(found, await routes.consistency(before, found.size))
        with self._folder.opened() as file:
            reached = self._folder.reached(state)
            file.seek(reached.end)
            there, size = await apart(_kept, islice(whole_lines(file), before - reached.tree.size))
            # Lines that were cut off here are asked for again, and held against what was seen of them.
            file.seek(reached.end + size)
            await _add(routes, file, reached.tree.size + there, found.size, most_bytes, show)
            file.seek(reached.end)
            lines = islice(whole_lines(file), found.size - reached.tree.size)
            await apart(state.follow, found, reached.passing(lines), reached.tree)
        return found, reached

    async def _fetch_transcripts(self, routes: LogRoutes, most_bytes: int) -> tuple[int, tuple[str, ...]]:
        """Download every transcript of which the log has more than it had; how many, and of which sessions the service
        gave none.
        """
        reached, due = self._folder.due()
        refused: list[str] = []
        try:
            for each in due:
                each.path.parent.mkdir(exist_ok=True)
                told = most_bytes if each.most is None else min(most_bytes, each.most)
                try:
                    path = await routes.transcript(each.session, each.path, most_bytes=told)
                except Refused as problem:
                    if problem.type not in ("not-found", "forbidden"):
                        raise
                    refused.append(each.session)
                    continue
                most_bytes -= path.stat().st_size
                each.thread.fetched = each.thread.lines
        finally:
            self._folder.write("frontier", reached.content())
        return len(due) - len(refused), tuple(refused)


def _kept(lines: Iterable[bytes]) -> tuple[int, int]:
    """How many lines there are, and their bytes with their ends."""
    number = size = 0
    for line in lines:
        number, size = number + 1, size + len(line) + 1
    return number, size


async def _add(
    routes: LogRoutes,
    file: BinaryIO,
    start: int,
    end: int,
    most_bytes: int,
    show: Callable[[int, int | None], None] | None,
) -> None:
    """Write the entries of a log from one number up to another to a file whose earlier lines have been read, in the
    place of what comes behind them.

    Raises:
        ProtocolError: when they have more bytes than they may; the file has as many as it had.
    """
    began = file.tell()
    file.truncate(began)
    while start < end:
        page = await routes.entries(start, end - 1)
        if file.tell() - began + sum(map(len, page)) > most_bytes:
            file.truncate(began)
            raise ProtocolError(f"the log has grown by more than {most_bytes:,} bytes: say so if it may")
        if max(map(len, page)) > records.MOST_LINE:
            file.truncate(began)
            raise ProtocolError(f"the log has a line of more than {records.MOST_LINE:,} bytes")
        file.writelines(line + b"\n" for line in page)
        start += len(page)
        if show is not None:
            show(start, end)
