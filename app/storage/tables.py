"""The tables. Exact amounts are decimal strings; public documents are canonical JSON."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

principals = Table(
    "principals",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("key_id", String(32), nullable=False, unique=True),
    Column("key_hash", String(64), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("revoked_at", String(32)),
)

#: Browsers that somebody has logged in with, by the hash of what the cookie holds, and the key that it was done with.
console_logins = Table(
    "console_logins",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("principal", ForeignKey("principals.name"), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("place", String(64), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("used_at", String(32), nullable=False),
    Index("ix_console_logins_principal_created_at", "principal", "created_at"),
)

datasets = Table(
    "datasets",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("spec", Text, nullable=False),
    Column("records", Double),
    Column("bought", Text, nullable=False),
    Column("race_sessions", Integer, nullable=False),
    Column("vault_entry", Text, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("retired_at", String(32)),
    Column("forfeited", String(48), nullable=False),
    Column("forfeited_pure", String(48), nullable=False),
    Column("impure", Boolean, nullable=False),
    Column("commitment", String(64)),
    Column("revealed_to", Text),
)

grants = Table(
    "grants",
    metadata,
    Column("dataset", ForeignKey("datasets.name"), primary_key=True),
    Column("principal", ForeignKey("principals.name"), primary_key=True),
    Column("epsilon", String(40), nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    Column("owner", ForeignKey("principals.name"), nullable=False),
    Column("header", LargeBinary, nullable=False),
    Column("status", String(8), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("queries_asked", BigInteger, nullable=False),
    Column("updates_used", BigInteger, nullable=False),
    Column("spent", String(48), nullable=False),
    Column("reserved", String(48), nullable=False),
    Column("spent_pure", String(48)),
    Column("reserved_pure", String(48)),
    Column("head_hash", String(64), nullable=False),
    Column("opened_at", String(32), nullable=False),
    Column("closed_at", String(32)),
    # Whether it is closed and part of what closed ones have spent in :data:`standing`.
    Column("settled", Boolean, nullable=False, server_default=false()),
    # What it was opened with, where that is part of what :data:`standing` has as held until it is settled.
    Column("held", String(48)),
    Column("held_pure", String(48)),
    Index(
        "ix_sessions_unsettled",
        "dataset",
        "status",
        sqlite_where=text("settled = 0"),
        postgresql_where=text("NOT settled"),
    ),
    # Those that are in no sum.
    Index(
        "ix_sessions_uncounted",
        "dataset",
        sqlite_where=text("settled = 0 AND held IS NULL"),
        postgresql_where=text("NOT settled AND held IS NULL"),
    ),
    # The order of lists: of all sessions, of a data set's, of one owner's, and of those that are open.
    Index("ix_sessions_dataset_opened_at_id", "dataset", "opened_at", "id"),
    Index("ix_sessions_opened_at_id", "opened_at", "id"),
    Index("ix_sessions_owner_opened_at_id", "owner", "opened_at", "id"),
    Index("ix_sessions_status_opened_at_id", "status", "opened_at", "id"),
)

#: Counts that a source told once: ``asked`` says which these are, ``entry`` names their private file. ``file_name`` is
#: the private file of the data set that they are of.
kept_counts = Table(
    "kept_counts",
    metadata,
    Column("file_name", String(128), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("asked", Text, nullable=False),
    Column("entry", Text, nullable=False),
)

#: Connections to databases outside: ``sealed`` is a URL with its secret, under a key that is made of the vault's.
connections = Table(
    "connections",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("type", String(16), nullable=False),
    Column("sealed", Text, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("created_by", String(64), nullable=False),
)

#: What sessions took of a data set, added up by whose they are and whether their noise is pure: what those that are
#: settled have spent, and what all others that count were opened with.
standing = Table(
    "standing",
    metadata,
    Column("dataset", ForeignKey("datasets.name"), primary_key=True),
    Column("owner", ForeignKey("principals.name"), primary_key=True),
    Column("pure", Boolean, primary_key=True),
    Column("spent", String(48), nullable=False),
    Column("spent_pure", String(48)),
    Column("held", String(48), nullable=False),
    Column("held_pure", String(48)),
)

#: What the movements of a data set's ledger come to, up to the one that :data:`ledger_state` names, by whose session it
#: was and whether its noise is pure: what is held and what is spent, in both sums.
ledger_sums = Table(
    "ledger_sums",
    metadata,
    Column("dataset", ForeignKey("datasets.name"), primary_key=True),
    Column("owner", ForeignKey("principals.name"), primary_key=True),
    Column("pure", Boolean, primary_key=True),
    Column("reserved", String(48), nullable=False),
    Column("spent", String(48), nullable=False),
    Column("reserved_pure", String(48)),
    Column("spent_pure", String(48)),
)

#: The last movement that is part of :data:`ledger_sums`; one row, which whoever adds to them holds.
ledger_state = Table(
    "ledger_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("movement", BigInteger, nullable=False),
)

#: ``kind`` of an entry: what a session needs to know of it when it is loaded again.
HYPOTHESIS, MEASUREMENT, CACHED, UNVERIFIED, FORFEIT, RELEASE = range(6)

entries = Table(
    "entries",
    metadata,
    Column("session", ForeignKey("sessions.id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, nullable=False),
    Column("digest", LargeBinary),
    Column("units", LargeBinary),
    Column("error_bound", Double),
    Column("line", LargeBinary, nullable=False),
)

weights = Table(
    "weights",
    metadata,
    Column("session", ForeignKey("sessions.id"), primary_key=True),
    Column("sha256", String(64), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("ix_weights_session_sequence", "session", "sequence"),
)

evidence = Table(
    "evidence",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    Column("session", ForeignKey("sessions.id"), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("shared", Boolean, nullable=False),
    Column("line", LargeBinary, nullable=False),
    Index("ix_evidence_dataset_id", "dataset", "id"),
    Index("ix_evidence_dataset_sha256", "dataset", "sha256"),
    Index("ix_evidence_session_sequence", "session", "sequence"),
)

releases = Table(
    "releases",
    metadata,
    Column("id", ForeignKey("sessions.id"), primary_key=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    Column("owner", ForeignKey("principals.name"), nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("status", String(16), nullable=False),
    Column("step", String(16), nullable=False),
    Column("progress", Double, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("worker", String(64)),
    Column("beat", Double, nullable=False),
    Column("finished_at", String(32)),
    Column("problem", LargeBinary),
    Column("result", LargeBinary),
    Column("expected_seconds", Double, nullable=False, server_default="0"),
    Index("ix_releases_status_created_at_id", "status", "created_at", "id"),
    Index("ix_releases_created_at_id", "created_at", "id"),
    Index("ix_releases_owner_created_at_id", "owner", "created_at", "id"),
)

release_files = Table(
    "release_files",
    metadata,
    Column("release", ForeignKey("releases.id"), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    Column("session", ForeignKey("sessions.id")),
    Column("kind", String(16), nullable=False),
    Column("amount", String(48), nullable=False),
    Column("pure", String(48)),
    Column("sequence", BigInteger),
    Column("recorded_at", String(32), nullable=False),
    Index("ix_ledger_dataset_id", "dataset", "id"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("principal", ForeignKey("principals.name"), primary_key=True),
    Column("route", String(160), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("body_hash", String(64), nullable=False),
    Column("opens", Boolean, nullable=False),
    Column("reply", LargeBinary, nullable=False),
    Column("recorded_at", String(32), nullable=False),
    Column("sequence", BigInteger),
    Index("ix_idempotency_principal_route_sequence", "principal", "route", "sequence"),
)

#: What became of principals and data sets, as lines of the log: rows of others change, and tell the end alone.
events = Table(
    "events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("line", LargeBinary, nullable=False),
)

#: ``kind`` of leaves: where their lines stand, and what ``session`` and ``first`` mean. Events and movements by their
#: ids, a header by its session, measurements by their ids, entries by session and sequence.
EVENT, MOVEMENT, HEADER, RECORD, ENTRY = range(5)

#: Leaves that follow one another in the log and where their lines stand: ``count`` of them, from position ``start`` and
#: number ``first`` on. Tables of the log refer to none by a key: the check would hold the rows of sessions, which
#: answers wait for.
log_runs = Table(
    "log_runs",
    metadata,
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, nullable=False),
    Column("session", String(32)),
    Column("first", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False),
    Index("ix_log_runs_session_kind_first", "session", "kind", "first"),
)

#: Hashes of leaves, and of complete tiles: see :mod:`curator_client.proofs.tiles`. The last one of a
#: level is replaced as it grows.
log_tiles = Table(
    "log_tiles",
    metadata,
    Column("level", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("hashes", LargeBinary, nullable=False),
)

#: How far the log has come, one row: its size, and the last event and movement that are in it.
log_state = Table(
    "log_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("size", BigInteger, nullable=False),
    Column("event", BigInteger, nullable=False),
    Column("movement", BigInteger, nullable=False),
)

#: How far the log has come with each session; ``following`` until it is closed and all of it is there.
log_sessions = Table(
    "log_sessions",
    metadata,
    Column("session", String(32), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("following", Boolean, nullable=False),
    Index("ix_log_sessions_following_session", "following", "session"),
)

#: What witnesses have cosigned: for each of an auditor's newest checkpoints the key that was told first, when, and the
#: line of the cosignature.
log_cosignatures = Table(
    "log_cosignatures",
    metadata,
    Column("principal", ForeignKey("principals.name"), primary_key=True),
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("line", LargeBinary, nullable=False),
    Index("ix_log_cosignatures_size", "size"),
)

#: Keys that the log was signed with, in their order, as lines for verifiers; the last one signs. With each but the
#: first stands the statement by which the one before vouched for it, and the event that tells of it.
log_keys = Table(
    "log_keys",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False),
    Column("statement", LargeBinary),
    Column("event", BigInteger),
)

#: Audits that were asked for, and how far each is. ``slot`` is 1 while one has not ended, so that there is one at a
#: time, and null from then on. ``session`` refers to none by a key, as in tables of the log.
audits = Table(
    "audits",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("owner", ForeignKey("principals.name"), nullable=False),
    Column("session", String(32)),
    Column("earlier", Text),
    Column("key", String(255)),
    Column("body_hash", String(64)),
    Column("status", String(16), nullable=False),
    Column("slot", SmallInteger, unique=True),
    Column("worker", String(64)),
    Column("beat", Double, nullable=False),
    Column("progress", LargeBinary, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("finished_at", String(32)),
    Column("stopped_by", String(64)),
    Column("problem", LargeBinary),
    Column("verdict", String(16)),
    Column("result", LargeBinary),
    Index("ix_audits_created_at_id", "created_at", "id"),
)

#: Reports of audits, by their media type.
audit_reports = Table(
    "audit_reports",
    metadata,
    Column("audit", ForeignKey("audits.id"), primary_key=True),
    Column("form", String(32), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

#: Jobs that servers have put out for workers on other machines (:mod:`app.storage.job_table`). No private number and no
#: key stands in them. Times are seconds since 1970 by the database's clock: ``wanted`` is when the server last said
#: that it waits, ``beat`` when the worker last said that it works. ``claims`` counts the workers that took the job.
jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("task", LargeBinary, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("created", Double, nullable=False),
    Column("wanted", Double, nullable=False),
    Column("status", String(16), nullable=False),
    Column("worker", String(32)),
    Column("beat", Double),
    Column("claims", Integer, nullable=False),
    Column("progress", Double, nullable=False),
    Column("end", String(16)),
    Column("result", LargeBinary),
)
