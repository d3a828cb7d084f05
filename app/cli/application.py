"""The command line as a whole: all commands, and what becomes of a failure."""

from __future__ import annotations

import sys

from app.cli.commands import (  # noqa: F401 - they add themselves
    audits,
    datasets,
    principals,
    questions,
    releases,
    service,
    sessions,
)
from app.cli.errors import Refusal
from app.cli.groups import cli
from app.cli.rendering import show_error, show_problem


def main() -> None:
    """Run the command line; every failure that the user can mend is told in a sentence, without a stack trace."""
    from app.client.errors import Problem, ProtocolError, Unreachable
    from app.spaces.errors import CuratorError

    code = 1
    try:
        cli()
        return
    except Problem as problem:
        show_problem(problem)
    except CuratorError as error:
        show_error(error.detail)
    except Refusal as refusal:
        show_error(str(refusal))
        code = refusal.code
    except (Unreachable, ProtocolError, OSError) as error:
        show_error(str(error))
    except UnicodeDecodeError:
        show_error("the file is not UTF-8 text")
    except KeyboardInterrupt:
        show_error("interrupted")
        code = 130
    sys.exit(code)
