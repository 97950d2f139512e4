"""The program: one stack config becomes one sweep, or the volumes that outlive them. Config: docs/stack-config.md."""

from __future__ import annotations

from pathlib import Path

from components.program import one_message, program

ROOT = Path(__file__).resolve().parent

with one_message():
    program(ROOT).export()
