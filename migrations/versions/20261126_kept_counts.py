"""counts that a source told once

Revision: 20261126_kept_counts, after 20261123_baseline, 2026-11-26 09:45:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126_kept_counts"
down_revision = "20261123_baseline"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kept_counts",
        sa.Column("file_name", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("file_name", "name", name=op.f("pk_kept_counts")),
    )
