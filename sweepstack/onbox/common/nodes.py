"""What runner, scheduler and stack config share of cells over several nodes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NODES = "SWEEPSTACK_NODES"
"""The variable of a cell that says on how many nodes it runs; it is a part of its version."""
ALLOCATION = "SWEEPSTACK_WORKER_NODES"
"""The variable of a worker that describes its allocation."""
PEER = re.compile(r"((?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]*)(:(?P<port>[0-9]{1,5}))?")
"""A node besides the first one, as the first one enters it by ssh."""


class Allocation(NamedTuple):
    """The nodes that a scheduler gave to a worker. `nodes`: name → address, the worker's own first. `start`: the
    command behind which a program's words stand so that it runs on `{node}`; stdin and its end reach it."""

    nodes: Mapping[str, str]
    start: Sequence[str]

    @classmethod
    def of_environment(cls) -> Allocation | None:
        """This worker's; None where it is not in one of several nodes. Raises ValueError, KeyError, TypeError."""
        text = os.environ.get(ALLOCATION)
        return cls.of(json.loads(text)) if text else None

    @classmethod
    def of(cls, known: Mapping[str, object]) -> Allocation:
        """Made again from `as_json`. Raises KeyError, TypeError."""
        nodes, start = known["nodes"], known["start"]
        if not isinstance(nodes, dict) or not isinstance(start, list):
            raise TypeError("no allocation")
        return cls({str(name): str(at) for name, at in nodes.items()}, [str(word) for word in start])

    def as_json(self) -> dict[str, object]:
        """For a file."""
        return {"nodes": dict(self.nodes), "start": list(self.start)}
