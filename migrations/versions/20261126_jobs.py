"""jobs for workers on other machines

Revision: 20261126_jobs, after 20261126_connections, 2026-11-26 11:30:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126_jobs"
down_revision = "20261126_connections"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("task", sa.LargeBinary(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("wanted", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.String(length=32), nullable=True),
        sa.Column("beat", sa.Double(), nullable=True),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("end", sa.String(length=16), nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
