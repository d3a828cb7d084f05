"""One cluster of Spark for a whole run of tests (see `kept.py`), on this machine alone, and as a program its keeper.

`make spark` lays its jars into `.spark` where there is a Java that runs them; where there is none tests of Spark skip,
and nowhere else.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit import kept
from tests.kit.processes import end_with_tests

#: What whoever asks the cluster must know: texts that are searched for.
TOKEN = "quux-token"
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
#: Small enough to be begun in seconds: no compiler that takes its time, no second thoughts about a query of a few rows.
_JAVA = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-modules=jdk.incubator.vector")
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "curator",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
}


def is_run_here() -> bool:
    """Whether there is a Java that runs it."""
    java = shutil.which("java")
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr if java else ""
    version = re.search(r'version "([0-9]+)', told)
    return version is not None and int(version[1]) >= 17


def server_of_run() -> str:
    """The URL of the run's cluster. The test skips where no Java runs it."""
    if not is_run_here():
        pytest.skip("Spark needs Java 17 or newer, and there is none")
    assert (kept.ROOT / ".spark").is_dir(), "make spark lays the jars of a cluster into .spark"
    return kept.server_of_run("spark", __name__)


def launch(folder: Path, port: int = 0) -> tuple[subprocess.Popen[bytes], int]:
    """Start a cluster that writes to a folder; it, and the port that it answers on.

    One that a signal ends before it has written anything, as was seen beside many other tests, is started once more.
    """
    for last in (False, True):
        process, log = _started(folder, port)
        while not (found := re.search(rb"server started at: 127\.0\.0\.1:([0-9]+)", log.read_bytes())):
            if process.poll() is not None and process.returncode < 0 and not (last or log.read_bytes()):
                break
            assert process.poll() is None, f"it ended with {process.returncode}: {log.read_text()[-2000:]}"
            time.sleep(0.1)
        if found:
            break
    assert found
    return process, int(found[1])


def _started(folder: Path, port: int) -> tuple[subprocess.Popen[bytes], Path]:
    """A process of Java, and where it writes its log."""
    (jars,) = (kept.ROOT / ".spark" / "lib").glob("python*/site-packages/pyspark/jars")
    settings = _SETTINGS | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "java.io.tmpdir": str(folder),
    }
    log = folder / f"log-{time.monotonic_ns()}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                "java", "-cp", f"{jars}/*", *_JAVA,
                *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
                "-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true",
                *(f"-D{key}={value}" for key, value in settings.items()),
                "org.apache.spark.sql.connect.service.SparkConnectServer",
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN},
            preexec_fn=end_with_tests,
        )  # fmt: skip
    return process, log


def url_of(port: int) -> str:
    """The URL of a cluster on this machine, with its token."""
    return f"sc://127.0.0.1:{port}/;token={TOKEN}"


def keep(folder: Path, pid: int) -> None:
    """Be the keeper."""
    ends = os.pidfd_open(pid)
    process, port = launch(folder)
    try:
        print(url_of(port), flush=True)  # noqa: T201
        select.select([ends], [], [])
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
