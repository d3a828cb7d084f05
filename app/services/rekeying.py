"""Another key for the log: the old one vouches for it, and the log tells of it before it signs."""

from __future__ import annotations

import time

from app.services.log_keys import LogKeys
from app.services.sequencer import SECONDS, Sequencer

#: How long nothing may come into the log before it is given up: others may be about it.
PATIENCE_SECONDS = 30.0


class LogLags(Exception):
    """The log does not tell of its new key yet."""


def tell(keys: LogKeys, sequencer: Sequencer) -> None:
    """Bring what there is into the log until it tells of the key that is to sign.

    Raises:
        LogLags: when it does not get that far.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not keys.told():
        if sequencer.step():
            end = time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() > end:
            raise LogLags("what was recorded does not come into the log: another server may hold it up; try again")
        else:
            time.sleep(SECONDS / 10)
