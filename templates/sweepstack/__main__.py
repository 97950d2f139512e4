"""The Pulumi program: turns stacks/Pulumi.<stack>.yaml into a sweep, or into volumes."""

from pathlib import Path

from components.program import one_message, program

with one_message():
    program(Path(__file__).resolve().parent).export()
