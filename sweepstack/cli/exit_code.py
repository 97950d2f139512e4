"""Turns the answer of a command, or its error, into the exit code of `sweepctl`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer
from typer.exceptions import TyperException


def answer(ask: Callable[[], int]) -> None:
    """Runs one command. Each error, also an unexpected one, becomes one message.

    With `--json` it is also one document on stdout, unless the command has printed one. Exit codes: see `output`. Typer
    itself reports wrong arguments.
    """
    from sweepstack.cli.output import NO, UNSURE, No, Unsure, complain
    from sweepstack.onbox.common.errors import SweepstackError

    code = UNSURE

    try:
        code = ask()
    except (TyperException, typer.Exit, typer.Abort):
        raise
    except No as error:
        complain(str(error), error.next)
        code = UNSURE if isinstance(error, Unsure) else NO
    except SweepstackError as error:
        complain(str(error))
    except KeyboardInterrupt:
        complain("interrupted; nothing is half done: run it again")
        code = 130
    except BrokenPipeError:
        _no_more_output()  # the reader has closed the pipe, so no message can reach it
        code = UNSURE
    except Exception as error:
        if isinstance(error, OSError) and (why := _unwritable()):
            _no_more_output()
            complain(f"the output can't be written: {why}. What the command did before is done", ["run it again"])
            raise typer.Exit(UNSURE) from error
        if os.environ.get("SWEEPCTL_DEBUG"):
            raise
        complain(
            f"{type(error).__name__}: {error}\nthis is a mistake in sweepctl, and the answer is not known; "
            "SWEEPCTL_DEBUG=1 shows where it happened"
        )
    raise typer.Exit(code)


def _unwritable() -> str:
    """Why stdout can't be written to; "" if it can. The unwritten output is still in the buffer."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _no_more_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
