"""indexes by which sessions, and weights in transcripts, are read a page at a time

Revision: 20261121_pages, after 20261120_forfeited, 2026-11-21 10:00:00
"""

from __future__ import annotations

from alembic import op

revision = "20261121_pages"
down_revision = "20261120_forfeited"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_sessions_opened_at_id", "sessions", ["opened_at", "id"])
    op.create_index("ix_sessions_owner_opened_at_id", "sessions", ["owner", "opened_at", "id"])
    op.drop_index("ix_sessions_owner", "sessions")
    op.create_index("ix_weights_session_sequence", "weights", ["session", "sequence"])
