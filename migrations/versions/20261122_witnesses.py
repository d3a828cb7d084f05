"""cosignatures of the log's witnesses, and the keys that it was signed with

Revision: 20261122_witnesses, after 20261122_log, 2026-11-22 21:30:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_witnesses"
down_revision = "20261122_log"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
