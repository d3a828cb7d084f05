"""commitments to private files, and who was given their keys

Revision: 20261122_commitments, after 20261122_witnesses, 2026-11-22 22:10:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_commitments"
down_revision = "20261122_witnesses"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("datasets", sa.Column("commitment", sa.String(length=64), nullable=True))
    op.add_column("datasets", sa.Column("revealed_to", sa.Text(), nullable=True))
