"""the log of everything public, and what became of principals and data sets

Revision: 20261122_log, after 20261122_releases, 2026-11-22 18:55:00
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "20261122_log"
down_revision = "20261122_releases"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_table(
        "log_runs",
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("session", sa.String(length=32), nullable=True),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("start", name=op.f("pk_log_runs")),
    )
    op.create_index("ix_log_runs_session_kind_first", "log_runs", ["session", "kind", "first"])
    op.create_table(
        "log_tiles",
        sa.Column("level", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "number", name=op.f("pk_log_tiles")),
    )
    op.create_table(
        "log_state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("movement", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_state")),
    )
    op.create_table(
        "log_sessions",
        sa.Column("session", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("following", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("session", name=op.f("pk_log_sessions")),
    )
    op.create_index("ix_log_sessions_following_session", "log_sessions", ["following", "session"])
    _tell_what_was()


def _tell_what_was() -> None:
    """Principals and data sets of before, as far as their rows tell: keys that were replaced are not remembered."""
    connection = op.get_bind()
    lines: list[tuple[str, dict[str, Any]]] = []
    for row in connection.execute(sa.text("SELECT name, role, created_at, revoked_at FROM principals")):
        told = {"record": "principal", "name": row.name, "role": row.role}
        lines.append((row.created_at, told | {"event": "created", "recorded_at": row.created_at}))
        if row.revoked_at is not None:
            lines.append((row.revoked_at, told | {"event": "revoked", "recorded_at": row.revoked_at}))
    datasets = "SELECT name, spec, records, created_at, retired_at FROM datasets WHERE name NOT LIKE '~%'"
    for row in connection.execute(sa.text(datasets)):
        told = {"record": "dataset", "name": row.name}
        declared = told | {"event": "registered", "declared": json.loads(row.spec), "recorded_at": row.created_at}
        lines.append((row.created_at, declared if row.records is None else declared | {"records": row.records}))
        if row.retired_at is not None:
            lines.append((row.retired_at, told | {"event": "retired", "recorded_at": row.retired_at}))
    events = sa.table("events", sa.column("line", sa.LargeBinary))
    for _, document in sorted(lines, key=lambda line: line[0]):
        written = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        connection.execute(sa.insert(events), {"line": written.encode()})
