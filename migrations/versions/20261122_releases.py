"""releases for workloads known in advance, and what came of them

Revision: 20261122_releases, after 20261122_baseline, 2026-11-22 14:20:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_releases"
down_revision = "20261122_baseline"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
