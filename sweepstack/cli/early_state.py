"""Commands that ask the engine for the state before anything else, because that takes longest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand
from typer.exceptions import TyperException


class AsksState(TyperCommand):
    """Its `context.obj` is the running call (`sweepstack.status.engine.call.ExportCall`), or None.

    The command's module makes its other imports when it runs, while the engine works.
    """

    def begin(self, above: Any, name: str, args: Sequence[str]) -> Any:
        """Starts the call for the stack that these arguments name.

        None if there is no stack or no project, or if the arguments are wrong or ask for something else: the command
        itself then reports that. The arguments are split, but not converted: for that typer imports pydantic.
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
