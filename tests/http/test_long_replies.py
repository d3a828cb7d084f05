"""Long replies to clients who take them slowly: they wait on disk, and as many as may."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path

import pytest

from app.http import replies
from app.http.replies import SHORT, LongReplies
from app.services.answering.tickets import Ticket
from app.services.errors import TooManyRequests
from app.services.exports import PART, READER_BYTES, ExportSpace
from tests.kit.service import Service, open_session, people, refused

MIB = 1 << 20


class Content(bytes):
    """Bytes that tell when nobody holds them any more."""

    gone = False

    def __del__(self) -> None:
        Content.gone = True


@pytest.fixture
def space(tmp_path: Path) -> ExportSpace:
    """Room for four replies, of which one principal gets two."""
    return ExportSpace(tmp_path, 8 * READER_BYTES, 64 * MIB, lambda _: None)


def content(size: int) -> bytes:
    return bytes(range(256)) * (size // 256)


async def whole(sending: LongReplies, body: bytes, pause: float = 0.0) -> bytes:
    taken = bytearray()
    async for part in sending.parts(body, "ann"):
        taken += part
        await asyncio.sleep(pause)
    return bytes(taken)


@pytest.mark.unit
class TestLongReplies:
    def test_who_reads_at_once_is_sent_it_from_memory(self, space: ExportSpace, tmp_path: Path) -> None:
        """Catches a file for every long reply, and bytes that are lost between parts."""
        assert asyncio.run(whole(LongReplies(space, 4 * MIB), content(MIB + 256))) == content(MIB + 256)
        assert not [*tmp_path.iterdir()]

    def test_who_reads_slowly_has_it_on_disk(self, space: ExportSpace, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a reply that is held in memory for as long as somebody likes, and parts that are lost or doubled
        where it goes over to the file."""
        monkeypatch.setattr(replies, "_FROM_MEMORY_SECONDS", 0.05)
        held: list[bool] = []

        async def slowly() -> bytes:
            body = Content(content(MIB))
            taken = bytearray()
            parts = LongReplies(space, 4 * MIB).parts(body, "ann")
            del body
            async for part in parts:
                taken += part
                held.append(not Content.gone)
                await asyncio.sleep(0.03)
            return bytes(taken)

        assert asyncio.run(slowly()) == content(MIB)
        assert held[0]
        assert not held[4]
        assert space._open.total() == 0

    def test_no_more_waits_in_memory_than_may(self, space: ExportSpace) -> None:
        """Catches a second of memory for each of however many are asked for at once."""

        async def several() -> tuple[int, list[bytes]]:
            sending = LongReplies(space, MIB)
            first = sending.parts(content(MIB), "ann")
            begun = await anext(first)
            second = sending.parts(content(MIB), "ann")
            other = await anext(second)
            on_disk = space._on_disk.total()
            rest = [b"".join([begun, *[part async for part in first]]), b"".join([other, *[p async for p in second]])]
            return on_disk, rest

        on_disk, sent = asyncio.run(several())
        assert on_disk == MIB
        assert sent == [content(MIB)] * 2

    def test_who_has_as_many_as_may_be_is_cut_off(self, space: ExportSpace) -> None:
        """And not those that read; what is cut off leaves nothing. Catches files without end."""

        async def many() -> int:
            sending = LongReplies(space, 0)
            begun = [sending.parts(content(MIB), "ann") for _ in range(3)]
            for parts in begun[:2]:
                await anext(parts)
            with pytest.raises(TooManyRequests):
                await anext(begun[2])
            other = sending.parts(content(MIB), "bob")
            await anext(other)
            for parts in (*begun, other):
                await parts.aclose()
            return sending._free

        assert asyncio.run(many()) == 0
        assert space._open.total() == 0
        assert space._on_disk.total() == 0


@pytest.mark.api
def test_a_long_reply_is_whole(service: Service) -> None:
    """And its repeat the same bytes. Catches a length that is not that of what is sent."""
    analyst = service.principal("analyst")
    id = open_session(analyst, people(service), max_queries=2000)["id"]
    body = {"queries": [{"type": "predicate", "where": {"age": {"between": [0, 20]}}}] * 1200}
    headers = {"Idempotency-Key": "k"}
    first, again = (
        analyst.post(f"/v1/sessions/{id}/queries/batch", json=body, headers=headers, timeout=60) for _ in range(2)
    )
    assert len(first.content) > SHORT + PART
    assert len(first.json()["answers"]) == 1200
    assert first.content == again.content


@pytest.mark.api
def test_what_is_refused_is_forgotten(service: Service) -> None:
    """At once, and not when cycles are looked for, as a body may be a hundred megabytes. Catches a refusal whose frames
    hold it."""
    analyst = service.principal("analyst")
    id = open_session(analyst, people(service))["id"]
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            asked = {"type": "predicate", "where": {"sex": ["nobody"] * 50}}
            refused(analyst.post(f"/v1/sessions/{id}/queries", content=json.dumps(asked)), "invalid-query")
        left = [each for each in gc.get_objects() if isinstance(each, Ticket) and each.session == id]
        assert len(left) <= 1
    finally:
        gc.enable()
