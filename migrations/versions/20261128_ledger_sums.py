"""what the movements of a ledger come to, added up

The movements that are there already are added up by the first server that starts, a thousand at a time. Until then they
are looked at one by one.

Revision: 20261128_ledger_sums, after 20261128_held, 2026-11-28 16:00:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261128_ledger_sums"
down_revision = "20261128_held"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_sums",
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("pure", sa.Boolean(), nullable=False),
        sa.Column("reserved", sa.String(length=48), nullable=False),
        sa.Column("spent", sa.String(length=48), nullable=False),
        sa.Column("reserved_pure", sa.String(length=48)),
        sa.Column("spent_pure", sa.String(length=48)),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.name"], name=op.f("fk_ledger_sums_dataset")),
        sa.ForeignKeyConstraint(["owner"], ["principals.name"], name=op.f("fk_ledger_sums_owner")),
        sa.PrimaryKeyConstraint("dataset", "owner", "pure", name=op.f("pk_ledger_sums")),
    )
    op.create_table(
        "ledger_state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("movement", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_state")),
    )
