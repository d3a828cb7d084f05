from __future__ import annotations

from alembic import context

from app.storage.tables import metadata

# Migrations run only through app.storage.migrate, which hands in an open connection.
connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
