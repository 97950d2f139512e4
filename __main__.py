"""The Pulumi program: turns a stack config (docs/stack-config.md) into a sweep, or into volumes."""

from __future__ import annotations

from pathlib import Path

from components.program import one_message, program

ROOT = Path(__file__).resolve().parent

with one_message():
    program(ROOT).export()
