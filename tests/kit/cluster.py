"""A cluster of Dask in processes of this machine, with certificates of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.bootstrap.dask_finisher import Cluster
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT

#: So many workers may be lost over a task, as the scheduler is set, and it is begun anew: Dask's own default is 3.
FAILURES = 1
#: A worker, but for what does the tasks: statements are run, and closed forms are carried out.
_WORKER = """
import functools
from app.bootstrap import dask_worker
from app.bootstrap.nursery import Nursery
dask_worker.ProcessFinisher = functools.partial(dask_worker.ProcessFinisher, nursery=Nursery("tests.kit.doing"))
from distributed.cli.dask_worker import main
main()
"""


def certificates(folder: Path) -> dict[str, Path]:
    """The files of a new authority, and of a certificate and its key that it has signed."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "node")]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    now, files = datetime.now(UTC), {}
    for name, key, authority in zip(names, keys, (True, False), strict=True):
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .sign(keys[0], hashes.SHA256())
        )
        file = files["ca" if authority else "certificate"] = folder / f"{'ca' if authority else 'node'}.pem"
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files["key"] = folder / "node.key"
    clear = serialization.NoEncryption()
    private = keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, clear)
    files["key"].write_bytes(private)
    return files


class Dask:
    """A scheduler, and workers as they are begun.

    Args:
        folder: for certificates, logs, and what workers keep.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.files = folder, certificates(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.begin_scheduler(0)

    def begin_scheduler(self, port: int) -> subprocess.Popen[bytes]:
        """Begin a scheduler at a port, any one where that is 0."""
        told = self._folder / "scheduler.json"
        told.unlink(missing_ok=True)
        at = ("--host", "tls://127.0.0.1", "--port", str(port), "--no-show", "--scheduler-file", str(told))
        process = self._begin("-m", "distributed.cli.dask_scheduler", *at)
        deadline = time.monotonic() + patience(20)
        while not (told.exists() and told.read_text().endswith("}")):
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.05)
        self.url: str = json.loads(told.read_text())["address"]
        return process

    @property
    def cluster(self) -> Cluster:
        """Where it is."""
        return Cluster(self.url, *(str(self.files[name]) for name in ("ca", "certificate", "key")))

    def begin_worker(self) -> subprocess.Popen[bytes]:
        """A worker that does some tasks at a time, and is to be waited for."""
        own = ("--nthreads", "4", "--no-nanny", "--local-directory", str(self._folder))
        self.workers.append(self._begin("-c", _WORKER, self.url, *own))
        return self.workers[-1]

    def end(self) -> None:
        """End all of it."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _begin(self, *command: str) -> subprocess.Popen[bytes]:
        files = zip(("--tls-ca-file", "--tls-cert", "--tls-key"), map(str, self.files.values()), strict=True)
        more = ("--no-dashboard", *(part for pair in files for part in pair))
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command, *more],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(FAILURES)},
                preexec_fn=end_with_tests,
            )
        self._processes.append(process)
        return process


@contextmanager
def dask(folder: Path) -> Iterator[Dask]:
    """A cluster without workers, which ends with the context."""
    made = Dask(folder)
    try:
        yield made
    finally:
        made.end()
