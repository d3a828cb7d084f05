"""Sessions that are opened at one worker and closed at another would fill the first one's memory for good."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.services.answering import lane
from tests.kit.world import World, eventually, query

pytestmark = pytest.mark.adversarial


@pytest.mark.postgres
def test_a_session_that_another_process_closed_leaves_memory(
    worlds: Callable[..., World], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for it any more, so nothing else would drop it. Catches a lane that looks only when it is asked, and
    one that drops sessions which are still open."""
    monkeypatch.setattr(lane, "LOOK_SECONDS", 0.05)
    first, second = worlds(postgres_url), worlds(postgres_url)
    first.register("d")
    ann = first.analyst("ann")
    ids = [first.open(ann, "d", epsilon=0.05) for _ in range(6)]
    for id in ids:
        first.ask(ann, id, query(1))
    assert first.answering.residents[0] == 6
    for id in ids[1:]:
        second.close(ann, id)
    eventually(lambda: first.answering.residents[0] == 1)
    assert first.ask(ann, ids[0], query(1))["source"] == "cached"
    first.audit()
