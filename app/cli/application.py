"""The command line as a whole: all commands, and what becomes of a failure."""

from __future__ import annotations

import inspect
import sys
import traceback

from app.cli.commands import (  # noqa: F401 - they add themselves
    audits,
    connections,
    datasets,
    principals,
    questions,
    releases,
    service,
    sessions,
    sources,
)
from app.cli.errors import Refusal
from app.cli.groups import cli, groups
from app.cli.rendering import show_error, show_problem

#: The order in which help lists the commands that are in no group: what most people need first.
_ORDER = ("ask", "price", "sql", "plan", "compare", "publish", "grants", "ledger", "serve", "demo")


def _place(name: str) -> int:
    return (*_ORDER, name).index(name)


cli.registered_commands.sort(key=lambda each: _place(str(each.name or getattr(each.callback, "__name__", ""))))
for _group in groups:
    for _command in _group.registered_commands:
        # A paragraph is a line: where it is broken is for the terminal to say.
        paragraphs = (inspect.getdoc(_command.callback) or "").split("\n\n")
        _command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

#: The exit code of a fault of the program.
FAULT = 4


def main() -> None:
    """Run the command line; every failure that the user can mend is told in a sentence, without a stack trace. A fault
    of the program has an exit code of its own: no script takes it for a finding.
    """
    from app.declarations.errors import CuratorError
    from curator_client.errors import NoValue, ProtocolError, Refused, Unreachable

    code = 1
    try:
        cli()
        return
    except Refused as problem:
        show_problem(problem)
    except CuratorError as error:
        show_error(error.detail)
    except Refusal as refusal:
        show_error(str(refusal))
        code = refusal.code
    except NoValue as error:
        show_error(str(error))
    except (Unreachable, ProtocolError) as error:
        show_error(f"{str(error).rstrip('.')}. CURATOR_URL names the service: does it run there?")
    except OSError as error:
        show_error(str(error))
    except UnicodeDecodeError:
        show_error("the file is not UTF-8 text")
    except KeyboardInterrupt:
        show_error("interrupted")
        code = 130
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no verdict and no refusal
        traceback.print_exception(error)
        show_error("the program itself failed, which says nothing of what it was to look at: no verdict, no refusal")
        code = FAULT
    sys.exit(code)
