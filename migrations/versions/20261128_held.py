"""what open sessions hold, added up

Sessions that were opened before are counted one by one until they are settled.

Revision: 20261128_held, after 20261126_jobs, 2026-11-28 08:00:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261128_held"
down_revision = "20261126_jobs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (sa.Column("held", sa.String(length=48)), sa.Column("held_pure", sa.String(length=48))):
        op.add_column("sessions", column)
    op.add_column("standing", sa.Column("held", sa.String(length=48), nullable=False, server_default="0"))
    op.add_column("standing", sa.Column("held_pure", sa.String(length=48)))
    # A server of the version before that still runs would write sums without what is held: it fails instead.
    with op.batch_alter_table("standing") as batch:
        batch.alter_column("held", existing_type=sa.String(length=48), existing_nullable=False, server_default=None)
    op.drop_index("ix_sessions_unsettled", table_name="sessions")
    op.create_index(
        "ix_sessions_unsettled",
        "sessions",
        ["dataset", "status"],
        sqlite_where=sa.text("settled = 0"),
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_index(
        "ix_sessions_uncounted",
        "sessions",
        ["dataset"],
        sqlite_where=sa.text("settled = 0 AND held IS NULL"),
        postgresql_where=sa.text("NOT settled AND held IS NULL"),
    )
