"""what a release is foretold to take

Revision: 20261123_release_times, after 20261122_commitments, 2026-11-23 05:30:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261123_release_times"
down_revision = "20261122_commitments"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("releases", sa.Column("expected_seconds", sa.Double(), nullable=False, server_default="0"))
