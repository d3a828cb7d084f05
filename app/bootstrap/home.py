"""What the workers of a server are forked from, in the process that does nothing else: all that they run, imported."""

from __future__ import annotations

import gc
import os
import signal

import uvicorn.lifespan.on  # what else each worker would import late
import uvicorn.loops.uvloop  # noqa: F401

from app.bootstrap import serving  # noqa: F401
from app.bootstrap.process import ignore_signals

# A signal to the whole group ends workers and their supervisor, which asks this process how they ended.
ignore_signals()
os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
gc.collect()
gc.freeze()  # a collection in a worker would write to what it shares with this process, and copy it thereby
