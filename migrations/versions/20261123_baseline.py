"""the tables that a first release begins with

Revision: 20261123_baseline, after None, 2026-11-23 17:30:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261123_baseline"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("records", sa.Double(), nullable=True),
        sa.Column("bought", sa.Text(), nullable=False),
        sa.Column("race_sessions", sa.Integer(), nullable=False),
        sa.Column("vault_entry", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("retired_at", sa.String(length=32), nullable=True),
        sa.Column("forfeited", sa.String(length=48), nullable=False),
        sa.Column("forfeited_pure", sa.String(length=48), nullable=False),
        sa.Column("impure", sa.Boolean(), nullable=False),
        sa.Column("commitment", sa.String(length=64), nullable=True),
        sa.Column("revealed_to", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_datasets")),
    )
    op.create_table(
        "principals",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("revoked_at", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_principals")),
        sa.UniqueConstraint("key_id", name=op.f("uq_principals_key_id")),
    )
    op.create_table(
        "console_logins",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("place", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("used_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["principal"], ["principals.name"], name=op.f("fk_console_logins_principal")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_logins")),
    )
    op.create_index("ix_console_logins_principal_created_at", "console_logins", ["principal", "created_at"])
    op.create_table(
        "grants",
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("epsilon", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_grants_dataset")),
        sa.ForeignKeyConstraint(["principal"], ["principals.name"], name=op.f("fk_grants_principal")),
        sa.PrimaryKeyConstraint("dataset", "principal", name=op.f("pk_grants")),
    )
    op.create_table(
        "idempotency",
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=160), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("opens", sa.Boolean(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["principal"], ["principals.name"], name=op.f("fk_idempotency_principal")),
        sa.PrimaryKeyConstraint("principal", "route", "key", name=op.f("pk_idempotency")),
    )
    op.create_index("ix_idempotency_principal_route_sequence", "idempotency", ["principal", "route", "sequence"])
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("header", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("queries_asked", sa.BigInteger(), nullable=False),
        sa.Column("updates_used", sa.BigInteger(), nullable=False),
        sa.Column("spent", sa.String(length=48), nullable=False),
        sa.Column("reserved", sa.String(length=48), nullable=False),
        sa.Column("spent_pure", sa.String(length=48), nullable=True),
        sa.Column("reserved_pure", sa.String(length=48), nullable=True),
        sa.Column("head_hash", sa.String(length=64), nullable=False),
        sa.Column("opened_at", sa.String(length=32), nullable=False),
        sa.Column("closed_at", sa.String(length=32), nullable=True),
        sa.Column("settled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_sessions_dataset")),
        sa.ForeignKeyConstraint(["owner"], ["principals.name"], name=op.f("fk_sessions_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_dataset_opened_at_id", "sessions", ["dataset", "opened_at", "id"])
    op.create_index("ix_sessions_opened_at_id", "sessions", ["opened_at", "id"])
    op.create_index("ix_sessions_owner_opened_at_id", "sessions", ["owner", "opened_at", "id"])
    op.create_index("ix_sessions_status_opened_at_id", "sessions", ["status", "opened_at", "id"])
    op.create_index(
        "ix_sessions_unsettled",
        "sessions",
        ["dataset"],
        sqlite_where=sa.text("settled = 0"),
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_table(
        "standing",
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("pure", sa.Boolean(), nullable=False),
        sa.Column("spent", sa.String(length=48), nullable=False),
        sa.Column("spent_pure", sa.String(length=48), nullable=True),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_standing_dataset")),
        sa.ForeignKeyConstraint(["owner"], ["principals.name"], name=op.f("fk_standing_owner")),
        sa.PrimaryKeyConstraint("dataset", "owner", "pure", name=op.f("pk_standing")),
    )

    op.create_table(
        "entries",
        sa.Column("session", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("units", sa.LargeBinary(), nullable=True),
        sa.Column("error_bound", sa.Double(), nullable=True),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["session"], ["sessions.id"], name=op.f("fk_entries_session")),
        sa.PrimaryKeyConstraint("session", "sequence", name=op.f("pk_entries")),
    )
    op.create_table(
        "evidence",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_evidence_dataset")),
        sa.ForeignKeyConstraint(["session"], ["sessions.id"], name=op.f("fk_evidence_session")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evidence")),
    )
    op.create_index("ix_evidence_dataset_id", "evidence", ["dataset", "id"])
    op.create_index("ix_evidence_dataset_sha256", "evidence", ["dataset", "sha256"])
    op.create_index("ix_evidence_session_sequence", "evidence", ["session", "sequence"])
    op.create_table(
        "ledger",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=32), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("amount", sa.String(length=48), nullable=False),
        sa.Column("pure", sa.String(length=48), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=True),
        sa.Column("recorded_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_ledger_dataset")),
        sa.ForeignKeyConstraint(["session"], ["sessions.id"], name=op.f("fk_ledger_session")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
    )
    op.create_index("ix_ledger_dataset_id", "ledger", ["dataset", "id"])

    op.create_table(
        "weights",
        sa.Column("session", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["session"], ["sessions.id"], name=op.f("fk_weights_session")),
        sa.PrimaryKeyConstraint("session", "sha256", name=op.f("pk_weights")),
    )
    op.create_index("ix_weights_session_sequence", "weights", ["session", "sequence"])
    op.create_table(
        "releases",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("step", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("beat", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.String(length=32), nullable=True),
        sa.Column("problem", sa.LargeBinary(), nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.Column("expected_seconds", sa.Double(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_releases_dataset")),
        sa.ForeignKeyConstraint(["id"], ["sessions.id"], name=op.f("fk_releases_id")),
        sa.ForeignKeyConstraint(["owner"], ["principals.name"], name=op.f("fk_releases_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
    )
    op.create_index("ix_releases_created_at_id", "releases", ["created_at", "id"])
    op.create_index("ix_releases_owner_created_at_id", "releases", ["owner", "created_at", "id"])
    op.create_index("ix_releases_status_created_at_id", "releases", ["status", "created_at", "id"])
    op.create_table(
        "release_files",
        sa.Column("release", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["release"], ["releases.id"], name=op.f("fk_release_files_release")),
        sa.PrimaryKeyConstraint("release", "name", name=op.f("pk_release_files")),
    )
    op.create_table(
        "audits",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=32), nullable=True),
        sa.Column("earlier", sa.Text(), nullable=True),
        sa.Column("key", sa.String(length=255), nullable=True),
        sa.Column("body_hash", sa.String(length=64), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("slot", sa.SmallInteger(), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("beat", sa.Double(), nullable=False),
        sa.Column("progress", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("finished_at", sa.String(length=32), nullable=True),
        sa.Column("stopped_by", sa.String(length=64), nullable=True),
        sa.Column("problem", sa.LargeBinary(), nullable=True),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["owner"], ["principals.name"], name=op.f("fk_audits_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
        sa.UniqueConstraint("slot", name=op.f("uq_audits_slot")),
    )
    op.create_index("ix_audits_created_at_id", "audits", ["created_at", "id"])
    op.create_table(
        "audit_reports",
        sa.Column("audit", sa.String(length=32), nullable=False),
        sa.Column("form", sa.String(length=32), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["audit"], ["audits.id"], name=op.f("fk_audit_reports_audit")),
        sa.PrimaryKeyConstraint("audit", "form", name=op.f("pk_audit_reports")),
    )
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
    op.create_table(
        "log_cosignatures",
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["principal"], ["principals.name"], name=op.f("fk_log_cosignatures_principal")),
        sa.PrimaryKeyConstraint("principal", "size", name=op.f("pk_log_cosignatures")),
    )
    op.create_index("ix_log_cosignatures_size", "log_cosignatures", ["size"])
    op.create_table(
        "log_keys",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("statement", sa.LargeBinary(), nullable=True),
        sa.Column("event", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_log_keys")),
    )
