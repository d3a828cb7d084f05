"""What the workers of a server are forked from, in the process that does nothing else: all that they run, imported."""

from __future__ import annotations

import gc

import uvicorn.lifespan.on  # what else each worker would import late
import uvicorn.loops.uvloop  # noqa: F401

from app.bootstrap import serving  # noqa: F401

gc.collect()
gc.freeze()  # a collection in a worker would write to what it shares with this process, and copy it thereby
