"""The use cases together, whoever calls them and however."""

from __future__ import annotations

from dataclasses import dataclass

from app.services.answering.dispatch import Answering
from app.services.checks import Checks
from app.services.datasets import Datasets
from app.services.log import Log
from app.services.measurements import Measurements
from app.services.principals import Principals
from app.services.release_jobs import ReleaseJobs
from app.services.releases import Releases
from app.services.sequencer import Sequencer
from app.services.sessions import Sessions


@dataclass(frozen=True)
class Services:
    """The use cases that a caller can reach."""

    principals: Principals
    datasets: Datasets
    checks: Checks
    sessions: Sessions
    measurements: Measurements
    answering: Answering
    releases: Releases
    jobs: ReleaseJobs
    log: Log
    sequencer: Sequencer
