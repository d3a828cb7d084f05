"""The command line: runs the service, calls it as a client, and audits transcripts without it.

Commands that call the service take its address from ``CURATOR_URL`` and the caller's key from
``CURATOR_API_KEY``. What a command finds goes to standard output, everything else to standard error. Exit
code 0 is success, 1 a refusal or a failure told in a sentence, 2 a command that was not understood, 3 a log that
contradicts itself.
"""

from app.cli.application import main

__all__ = ["main"]
