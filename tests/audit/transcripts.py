"""Honest sessions played in memory, and their transcripts as bytes.

The player keeps the protocol by hand: consider, play with injected noise, seal, record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import rfc8785
from scipy.sparse import csr_array

from app.audit import writing
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import QueriesExhausted, UpdatesExhausted
from app.curator.facts import measure
from app.curator.mechanisms.protocol import Answer, Test
from app.curator.mechanisms.round import Hit, Miss, play
from app.curator.opening import Opening
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.privacy.ledger import Account
from app.services.query_bodies import words as as_asked
from app.spaces.queries.registry import parse_query
from tests.kit.forger import Document, hypothesis_digest, sha256
from tests.kit.strategies import Universe, Words, released


@dataclass
class Played:
    """A session that was played, and its transcript line by line."""

    session: Session
    lines: list[bytes] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    @property
    def documents(self) -> list[Document]:
        return [json.loads(line) for line in self.lines]

    def entry(self, **wanted: Any) -> int:
        """Position in the file of the first entry with these fields."""
        return next(
            i for i, d in enumerate(self.documents) if all(d.get(key) == value for key, value in wanted.items())
        )

    def sequence(self, position: int) -> int:
        return int(self.documents[position]["sequence"])


def play_session(
    u: Universe,
    x: np.ndarray,
    asked: list[Words | str],
    *,
    mechanism: Words,
    records_public: bool = True,
    untouched: bool = False,
    seed: int = 0,
    noise: Callable[[np.random.Generator, float], int] | None = None,
    **more: Any,
) -> Played:
    """A session over private integers; ``asked`` holds queries and the word "forfeit".

    Of an ``untouched`` data set it is planned to take all that is left, where it can.
    """
    rng = np.random.default_rng(seed)
    spec = parse_spec(u.declared | {"records_public": records_public})
    public = PublicDataset(spec)
    private = public.space.tensor(csr_array(x) if x.ndim == 2 and seed % 2 else x)
    if records_public:
        public = PublicDataset(spec, np.ldexp(float(measure(public.space, private, "mass")), -public.space.data_bits))
    if untouched:
        public = replace(public, left=Account(public.budget).whole)
    request = parse_request({"dataset": spec.name, "mechanism": mechanism, "epsilon": 0.5, "max_queries": 500} | more)
    plan = make_plan(public, request)
    header: Document = {
        "record": "header",
        "format": 1,
        "session": "a1b2",
        "dataset": public.descriptor(),
        "mechanism": request.document(),
        "plan": plan.document(),
        "opened_at": "2026-01-01T00:00:00Z",
    }
    paid = None
    if plan.purchase is not None:
        noisy = measure(public.space, private, plan.purchase.fact) + round(
            rng.laplace(0, float(plan.purchase.scale_units))
        )
        paid = Bought(plan.purchase.padded(noisy), plan.purchase.noise_scale)
        header["bought"] = paid.document()
    played = Played(Session(Opening(public, request, plan, paid)), [rfc8785.dumps(header)])
    session, head, named = played.session, sha256(played.lines[0]), set()
    for number, words in enumerate(asked):
        at = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}.5Z"
        if words == "forfeit":
            if session.updates_left == 0:
                continue
            session.forfeit()
            sealed = writing.forfeit_entry(sequence=session.sequence, recorded_at=at, previous_hash=head)
            played.lines.append(sealed.line)
            head = sealed.entry_hash
            continue
        read = parse_query(words)
        query = read.compiled(session.dataset.space)
        try:
            due = session.consider(query, unverified=read.unverified)
        except (QueriesExhausted, UpdatesExhausted):
            continue
        if not isinstance(due, Answer):
            exact = session.dataset.space.to_answer_grid(query.exact(private), query)
            scale = float(plan.noise_scale_units)
            drawn = round(rng.laplace(0, scale)) if noise is None else noise(rng, scale)
            outcome: Hit | Miss = Hit(exact + drawn)
            if isinstance(due, Test):
                outcome = play(int(due.hypothesis[0]), exact, drawn, plan.threshold_units)
            source = "measurement" if isinstance(outcome, Hit) else "hypothesis"
            answer = released(outcome.value, source, due.error_bound)
        else:
            answer = due
        if query.blob is not None and query.digest not in named:
            named.add(query.digest)
            played.lines.append(writing.weights_record(query.canonical["sha256"], query.blob))
        session.record(query, answer)
        sealed = writing.answer_entry(
            sequence=session.sequence,
            query=query.canonical_bytes,
            values=[session.real(int(answer.units[0]))],
            source=answer.source,
            error_bound=answer.error_bound,
            unverified=answer.unverified,
            recorded_at=at,
            previous_hash=head,
            asked=None if isinstance(words, str) else as_asked(words),
        )
        played.lines.append(sealed.line)
        head = sealed.entry_hash
    trailer: Document = {
        "record": "trailer",
        "entries": session.sequence,
        "head_hash": head,
        "hypothesis_digest": hypothesis_digest(played.documents),
        "updates": session.updates_used,
        "status": "open",
    }
    trailer["trailer_hash"] = sha256(rfc8785.dumps(trailer))
    played.lines.append(rfc8785.dumps(trailer))
    return played
