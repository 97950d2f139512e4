"""The Pulumi program: turns a stack config (docs/stack-config.md) into a sweep, or into volumes."""

from __future__ import annotations

import gc
from pathlib import Path

gc.disable()  # as in sweepstack/provider/__main__.py: what is imported stays; going through it is a tenth of the run
from components.program import one_message, program  # noqa: E402

gc.freeze()
gc.enable()

ROOT = Path(__file__).resolve().parent

with one_message():
    program(ROOT).export()
