"""The program: one stack config becomes one sweep, or the volumes that outlive them. Config: docs/stack-config.md."""

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
