"""The use cases together, whoever calls them and however."""

from __future__ import annotations

from dataclasses import dataclass

from app.services.answering.dispatch import Answering
from app.services.audit_jobs import AuditJobs
from app.services.audits import Audits
from app.services.checks import Checks
from app.services.commitments import Commitments
from app.services.connections import Connections
from app.services.datasets import Datasets
from app.services.dummy_datasets import DummyDatasets
from app.services.grants import Grants
from app.services.hypotheses import Hypotheses
from app.services.log import Log
from app.services.logins import Logins
from app.services.measurements import Measurements
from app.services.plans import Plans
from app.services.principals import Principals
from app.services.registration import Registration
from app.services.release_jobs import ReleaseJobs
from app.services.releases import Releases
from app.services.retirement import Retirement
from app.services.sequencer import Sequencer
from app.services.session_opening import SessionOpener
from app.services.sessions import Sessions
from app.services.sql import Sql
from app.services.transcripts import Transcripts


@dataclass(frozen=True)
class Services:
    """The use cases that a caller can reach."""

    principals: Principals
    logins: Logins
    datasets: Datasets
    registration: Registration
    checks: Checks
    grants: Grants
    connections: Connections
    commitments: Commitments
    retirement: Retirement
    dummies: DummyDatasets
    plans: Plans
    opener: SessionOpener
    sessions: Sessions
    sql: Sql
    hypotheses: Hypotheses
    transcripts: Transcripts
    measurements: Measurements
    answering: Answering
    releases: Releases
    jobs: ReleaseJobs
    log: Log
    sequencer: Sequencer
    audits: Audits
    audit_jobs: AuditJobs
