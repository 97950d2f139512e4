"""Puts tries that Aim's client logged into another repository of Aim, as one run a cell.

A program of its own, since Aim's package may hang, and prints as it likes: JSON on stdin (`aim_repo` makes it), and in
the file that this names a line for each try that is through. Of each sequence of numbers, a step that comes again
replaces the one before; other sequences stay behind. The runs read are copies that may be changed.
"""

from __future__ import annotations

import json
import math
import sys
from importlib import import_module
from typing import Any

OWN = "__"
"""How the names of parameters and of numbers begin that the client takes from the machine."""


def main() -> None:
    """Raises what Aim raises for the first try that can't be sent."""
    asked = json.load(sys.stdin)
    repo = import_module("aim.sdk.repo_utils").get_repo(asked["uri"])  # made where there is none
    for number, one in enumerate(asked["tries"]):
        source = import_module("aim").Repo.from_path(one["repo"])
        for at, local in enumerate(sorted(_opened(source, name) for name in source.list_all_runs())):
            _send(local[-1], repo, asked, one, at)
        with open(asked["through"], "a", encoding="utf-8") as through:
            through.write(f"{number}\n")


def _opened(repo: Any, name: str) -> tuple[float, str, Any]:
    """A run of a repository, which is no other process's any more, and before it what runs are sorted by."""
    words = {"system_tracking_interval": None, "capture_terminal_logs": False, "force_resume": True}
    run = import_module("aim").Run(name, repo=repo, **words)
    return run.creation_time, name, run


def _send(local: Any, repo: Any, asked: Any, one: Any, at: int) -> None:
    """One run of a try: the first has the cell's id, each further one a number behind it."""
    number = f"-{at}" if at else ""
    facts = {**one["facts"], "run": one["facts"]["run"] + number}
    name = facts["run"].replace("-", "")  # Aim takes names of its files apart at each -
    # Aim itself makes names of runs, and opens by name only what is there.
    repo.request_tree("meta", name, read_only=False).subtree(("meta", "chunks", name, "attrs"))["sweepstack"] = facts
    *_, run = _opened(repo, name)
    run.experiment, run.name = asked["experiment"], one["name"] + number
    for key, value in (local.get(...) or {}).items():
        if not key.startswith(OWN):
            run[key] = value
    run["sweepstack"] = facts
    for tag in one["tags"]:
        if tag not in run.tags:
            run.add_tag(tag)
    for metric in local.metrics():
        if metric.name.startswith(OWN):
            continue
        context = metric.context.to_dict()
        steps, (values, epochs, _) = metric.data.items_list()
        for step, value, epoch in zip(steps, values, epochs, strict=True):
            known = None if epoch is None or math.isnan(epoch) else int(epoch)
            run.track(value, name=metric.name, step=step, epoch=known, context=context)
    run.close()


if __name__ == "__main__":
    main()
