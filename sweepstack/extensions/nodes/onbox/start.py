"""The program of a cell's nodes: shipped as `nodes.py`, beside the package that it imports.

nodes.py preflight FILE | launch FILE | release BOX …     on the first node
nodes.py facts JSON | keep | end BOX …                            on a peer
nodes.py lead RECORD … | enter RECORD NODE …                      on the first, where nodes have doors
nodes.py door FOLDER …                                            on each other one then
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

VERBS = {
    "preflight": ("preflight", "main"),
    "launch": ("launch", "main"),
    "keep": ("keeper", "main"),
    "facts": ("facts", "serve"),
    "release": ("release", "main"),
    "end": ("release", "end"),
    "lead": ("lead", "main"),
    "door": ("door", "main"),
    "enter": ("door", "enter"),
}
"""Verb → module and function. Only what a verb needs is imported: a peer has less to read."""

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    module, function = VERBS[sys.argv[1]]
    result = getattr(import_module(f"sweepstack.onbox.nodes.{module}"), function)(*sys.argv[2:])
    sys.stdout.flush()
    os._exit(result or 0)
