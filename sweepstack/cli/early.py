"""Verbs that begin with the state of a stack: the engine takes longest, so it is asked before all else is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand
from typer.exceptions import TyperException


class AsksState(TyperCommand):
    """Its `context.obj` is the call that asks for the state (`sweepstack.status.engine.call.ExportCall`), or None. Its
    verb's module imports what it works with when it runs, while the engine works."""

    def begin(self, above: Any, name: str, args: Sequence[str]) -> Any:
        """Begins the call for the stack that these words name. None where there is no stack or no project, or where the
        words are wrong, or ask for something else: the command itself then finds that out, and says it.

        The words are told apart, and no value is read: for that typer imports pydantic.
        """
        from sweepstack.onbox.common.errors import SweepstackError
        from sweepstack.status.engine.call import ExportCall, find_project_root

        try:
            context = self.context_class(self, info_name=name, parent=above)
            words, _, _ = self.make_parser(context).parse_args(args=list(args))
            stack = words.get("stack") or os.environ.get("PULUMI_STACK")
            if not stack or any(words.get(other) for other in ("help", "watch", "evidence")):
                return None
            return ExportCall(stack, find_project_root(Path.cwd().resolve()))
        except (TyperException, SweepstackError, OSError):
            return None
