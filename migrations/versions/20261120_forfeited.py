"""what of a data set's budget is forfeited beside its sessions

Revision: 20261120_forfeited, after 20261120_first_tables, 2026-11-20 10:00:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261120_forfeited"
down_revision = "20261120_first_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("datasets", schema=None) as batch_op:
        batch_op.add_column(sa.Column("forfeited", sa.String(length=48), server_default="0", nullable=False))
