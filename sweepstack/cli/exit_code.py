"""How the answer of a verb, or its error, becomes the exit code of `sweepctl`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer
from typer.exceptions import TyperException


def answer(ask: Callable[[], int]) -> None:
    """Runs one verb. Every error is one clear message, an unforeseen one too; with `--json` also one document on
    stdout, where the verb had printed none. Exit codes: see `output`. What typer says of the words is left to typer."""
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
        _no_more_output()  # the reader has left: no second complaint
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
    """Why stdout takes nothing; empty where it does. What could not be written is still waiting to be."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _no_more_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
