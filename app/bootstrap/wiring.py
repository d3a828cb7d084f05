"""Wiring: every part of a service is made here and given the parts it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from sqlalchemy import Engine

from app.bootstrap.audit_worker import ProcessChecker
from app.bootstrap.clock import utc_now
from app.bootstrap.dask_finisher import Cluster, DaskFinisher
from app.bootstrap.lifecycle import Lifecycle
from app.bootstrap.log_keys import keys_of_log
from app.bootstrap.noise import SystemNoise
from app.bootstrap.places import note_of_ledger, place_of_files
from app.bootstrap.reader_process import ProcessReaders
from app.bootstrap.release_worker import ProcessFinisher
from app.bootstrap.table_finisher import TableFinisher
from app.bootstrap.traces import Traces
from app.curator import opening
from app.declarations.spec import SOURCES_OF_FILES
from app.http import problems
from app.http.app import create_app
from app.http.authentication import Authenticator
from app.http.bodies import BodyMemory
from app.http.context import Context
from app.http.deadline import Deadline
from app.http.delivery import Delivery
from app.http.fair_queue import FairQueue
from app.http.free_writing import FreeWriting
from app.http.metrics import Metrics
from app.http.replies import LongReplies
from app.http.streams import Streams
from app.releases import factorization
from app.server.connection_limits import ConnectionLimits
from app.server.protocol import ConnectionPolicy
from app.services import openings
from app.services.answering.dispatch import Answering
from app.services.answering.parked import Parked
from app.services.audit_jobs import AuditJobs
from app.services.audits import Audits
from app.services.balance import Balance
from app.services.checks import Checks
from app.services.commitments import Commitments
from app.services.connections import Connections
from app.services.cosignatures import Cosignatures
from app.services.datasets import Datasets, connections_in_use
from app.services.dummy_datasets import DummyDatasets
from app.services.exports import ExportSpace
from app.services.grants import Grants
from app.services.hourly import Hourly
from app.services.hypotheses import Hypotheses
from app.services.idempotency import remove_replies
from app.services.ledger_sums import LedgerSums
from app.services.log import Log
from app.services.logins import Logins
from app.services.measurements import Measurements
from app.services.memory import Memory
from app.services.plans import Plans
from app.services.principals import Principals
from app.services.registration import Registration
from app.services.release_jobs import QUICK_LIMIT, Finisher, ReleaseJobs
from app.services.releases import Releases
from app.services.retirement import Retirement
from app.services.sequencer import Sequencer
from app.services.services import Services
from app.services.session_opening import SessionOpener
from app.services.sessions import Sessions
from app.services.sql import Sql
from app.services.tracing import UNTRACED, Tracer
from app.services.transcripts import Transcripts
from app.settings import Settings
from app.storage.audit_store import SqlAudits
from app.storage.connections import SealedConnections
from app.storage.database import DataDirLock, Leader, database_bytes, is_sqlite, make_engines
from app.storage.job_table import JobTable, Kind
from app.storage.kept_counts import KeptFiles
from app.storage.ledger_watch import LedgerWatch
from app.storage.log_signatures import SqlCosignatures
from app.storage.log_store import SqlLog
from app.storage.private_store import VaultStore
from app.storage.readers.codes import Sealing
from app.storage.snapshots import SnapshotFiles
from app.storage.sources import (
    WAREHOUSES,
    ParquetFolders,
    PostgresTables,
    Sources,
    SparkTables,
    WarehouseTables,
    complaints,
)
from app.storage.store import SqlStore
from app.storage.vault import Vault

#: Plans that are made at a time, session states that are rebuilt at a time for transcripts and hypotheses, and files
#: that are read at a time: each takes as much memory as the universe or the file is large.
PLANS, EXPORTS, UPLOADS = 2, 2, 2
#: Pages of transcripts that are read from the database at a time.
TRANSCRIPT_PAGES = 2
#: What a release that is foretold to be quick may take of the memory that others may.
QUICK_MEMORY = 4
#: Seconds that the search for a plan may take.
PLAN_SECONDS = 20.0


@dataclass(frozen=True)
class Built:
    """A service that is made and not started."""

    context: Context
    store: SqlStore
    private: VaultStore
    connections: ConnectionPolicy

    @cached_property
    def app(self) -> FastAPI:
        """Its HTTP application, made when it is first asked for: preparing a start needs none."""
        # Where the protocol of each connection finds it.
        return create_app(self.context, {"connection_policy": self.connections})

    @property
    def services(self) -> Services:
        """The use cases."""
        return self.context.services


def _others(settings: Settings, engine: Engine) -> Callable[[Kind], Finisher] | None:
    """Makes what has others do tasks of a kind; None where this machine does them."""
    if settings.finisher == "table":
        return partial(TableFinisher, JobTable(engine), settings.release_seconds)
    if settings.finisher == "dask":
        cluster = Cluster.of(settings)
        return lambda kind: DaskFinisher(cluster, settings.memory_limit, settings.release_seconds)
    return None


def build(settings: Settings, noise: Any = None, shared: Path | None = None, lock: DataDirLock | None = None) -> Built:
    """Make a service, which :attr:`Context.lifecycle` then starts.

    Args:
        settings: the operator's.
        noise: replaces the system's noise, for tests.
        shared: the folder in which several workers share their metrics; None for a single process.
        lock: held, shared with other workers, while the service runs; None where the process holds it already.
    """
    reading, writing = make_engines(settings.sqlalchemy_url)
    store = SqlStore(reading, writing, exclusive=is_sqlite(settings.sqlalchemy_url))
    vault = Vault(
        place_of_files(settings, writing),
        settings.vault_key_bytes(),
        keys_folder=settings.keys_dir,
        copies=settings.data_dir,
    )
    outside = SealedConnections(vault, store, settings.hosts_of_sources)
    readers = ProcessReaders(
        source_seconds=settings.source_deadline_seconds, sealing=lambda: Sealing(settings.data_dir, vault.file_key())
    )
    files = ParquetFolders(readers, settings.folders_of_sources, settings.memory_limit)
    private = VaultStore(
        vault,
        settings.memory_limit,
        store.await_writers,
        readers,
        Sources(
            {
                **dict.fromkeys(SOURCES_OF_FILES, files),
                **{
                    kind: tables(
                        partial(outside.open, type=kind),
                        settings.source_deadline_seconds,
                        readers,
                        settings.memory_limit,
                    )
                    for kind, tables in (("postgresql", PostgresTables), ("spark", SparkTables))
                },
                **dict.fromkeys(
                    WAREHOUSES,
                    WarehouseTables(outside.open, settings.source_deadline_seconds, settings.engines_untried),
                ),
            },
            settings.request_timeout_seconds,
        ),
        KeptFiles(vault, store),
        files.ask_codes,
    )
    snapshots = SnapshotFiles(settings.snapshots_dir, settings.snapshot_limit)
    share = settings.memory_limit // 4
    source, metrics, delivery = noise or SystemNoise(), Metrics(shared), Delivery()
    traces = None if settings.traces is None else Traces(settings.traces)
    tracer: Tracer = traces or UNTRACED
    balance, free_writing = Balance(store), FreeWriting(settings, metrics.refused)
    answering = Answering(
        store,
        private,
        source,
        snapshots,
        utc_now,
        metrics,
        render=problems.document,
        deliver=delivery,
        soon=delivery.soon,
        queue_limit=settings.queue_limit,
        memory=Memory(
            settings.memory_limit - share, [lambda: private.held, openings.held, opening.held, factorization.held]
        ),
        turn_seconds=settings.request_timeout_seconds,
        parked=Parked(settings.source_queries, settings.source_tick_seconds, metrics, tracer),
        tracer=tracer,
        spendable=balance.check,
        admit=free_writing.admit,
        written=free_writing.count,
    )

    def close_session(id: str, seconds: float | None) -> None:
        if not releases.end(id):
            answering.close_now(id, seconds)

    datasets, registration = Datasets(store), Registration(store, private, utc_now)
    dummies = DummyDatasets(store, private, utc_now, datasets, close_session=close_session)
    retirement = Retirement(store, private, utc_now, datasets, dummies, close_session=close_session)
    sql_log = SqlLog(store)
    leader = Leader(writing)
    sequencer = Sequencer(sql_log, leader.pause, LedgerSums(store).step)
    plans = Plans(
        datasets,
        memory_limit=settings.memory_limit,
        release_seconds=settings.release_seconds,
        render=problems.document,
    )
    sessions = Sessions(store, log_size=sql_log.covering)
    releases = Releases(store, utc_now, problems.document)
    others = _others(settings, writing)
    jobs = ReleaseJobs(
        store,
        private,
        source,
        others("release") if others else ProcessFinisher(settings.memory_limit, settings.release_seconds),
        utc_now,
        metrics,
        render=problems.document,
        have_counted=answering.have_counted,
        spendable=balance.check,
        quick=ProcessFinisher(settings.memory_limit // QUICK_MEMORY, min(QUICK_LIMIT, settings.release_seconds)),
        tracer=tracer,
    )

    logins = Logins(store, utc_now)
    log_keys = keys_of_log(settings, store, sql_log)
    log = Log(sql_log, log_keys, Cosignatures(SqlCosignatures(store), sql_log, log_keys))
    transcripts = Transcripts(store, sessions, log_size=sql_log.covering)
    export_space = ExportSpace(settings.exports_dir, share, settings.export_limit, metrics.refused)
    audits = SqlAudits(store)
    audit_jobs = AuditJobs(
        audits,
        log,
        transcripts,
        export_space,
        ProcessChecker(settings.memory_limit, partial(others, "replay") if others else None),
        utc_now,
        metrics,
        render=problems.document,
        tracer=tracer,
    )
    lifecycle = Lifecycle(
        settings,
        store=store,
        private=private,
        snapshots=snapshots,
        answering=answering,
        retirement=retirement,
        metrics=metrics,
        background=[
            LedgerWatch(note_of_ledger(settings), store, leader.pause),
            Hourly(
                "replies",
                partial(remove_replies, store, utc_now),
                "replies of sessions closed long ago cannot be removed",
            ),
            Hourly("log-ins", logins.remove_old, "log-ins whose time is over cannot be removed"),
            Hourly("balance", balance.look, "the sums of budgets cannot be held against their sessions"),
            Hourly(
                "dummies",
                lambda stopping: dummies.end_old(),
                "old sessions on made-up records cannot be ended",
            ),
            jobs,
            audit_jobs,
            sequencer,
            *([] if traces is None else [traces]),
        ],
        database_bytes=lambda: database_bytes(reading, settings.embedded_database),
        lock=lock,
    )
    services = Services(
        Principals(store, utc_now),
        logins,
        datasets,
        registration,
        Checks(registration, private),
        Grants(store, datasets),
        Connections(outside, utc_now, partial(connections_in_use, store), complaints),
        Commitments(store, private, utc_now, datasets),
        retirement,
        dummies,
        plans,
        SessionOpener(store, private, source, utc_now, datasets, dummies, plans, balance.check),
        sessions,
        Sql(store, datasets, sessions),
        Hypotheses(store, snapshots, sessions),
        transcripts,
        Measurements(store, datasets),
        answering,
        releases,
        jobs,
        log,
        sequencer,
        Audits(audits, sessions, log, utc_now),
        audit_jobs,
    )
    authenticator = Authenticator(services.principals, settings, metrics.refused)
    context = Context(
        services=services,
        lifecycle=lifecycle,
        limits=settings,
        authenticator=authenticator,
        plans=FairQueue(PLANS, metrics.refused, authenticator.count_work, PLAN_SECONDS),
        exports=FairQueue(EXPORTS, metrics.refused, authenticator.count_work),
        uploads=FairQueue(UPLOADS, metrics.refused),
        export_space=export_space,
        replies=LongReplies(export_space, share // 2),
        body_memory=BodyMemory(max(settings.memory_limit // 4, settings.max_body_bytes), metrics.refused),
        delivery=delivery,
        streams=Streams(metrics.refused),
        deadline=Deadline(settings.answer_deadline_ms, metrics.late),
        metrics=metrics,
        tracer=tracer,
        pages=asyncio.Semaphore(TRANSCRIPT_PAGES),
    )
    connections = ConnectionPolicy(
        limits=ConnectionLimits(settings.max_connections, settings.connections_a_client, settings.trusts),
        seconds=settings.client_timeout_seconds,
        bytes_a_second=settings.client_min_rate,
        idle_seconds=settings.keep_alive_seconds,
        refused=metrics.refused,
        draining=context.drain,
    )
    return Built(context, store, private, connections)
