"""What is lost, torn or moved of a golden sweep: its state, its stack file, its evidence, single records, or what tells
of a box. One change is one thing that happened, and moments put several together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.outputs.sweeps import STACK, Change, Sweep, ended, orphaned


def _rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _birth(sweep: Sweep, box: str) -> Path:
    return sweep.evidence / "records" / "births" / f"{box}-g1.json"


def _resources(sweep: Sweep, kind: str) -> Iterator[dict[str, Any]]:
    for one in sweep.export["deployment"]["resources"]:
        if one["type"] == f"sweepstack:index:{kind}":
            yield one


# The state


def no_stack(sweep: Sweep) -> None:
    """The backend has no stack of this name."""
    sweep.state.with_name("state.json.none").touch()


def strays(sweep: Sweep) -> None:
    """Beside the state: box-1, on record; box-2, on no record, which carries the tag; box-3, whose create was not
    answered; and box-7, which was asked for and never rented: that is no alarm."""
    resources = sweep.export["deployment"]["resources"]
    sweep.export["deployment"]["resources"] = [one for one in resources if not one["urn"].endswith("::box-1")]
    for name in ("box-2", "box-3"):
        made = sweep.local / "boxes" / f"local-{name[-1] * 10}"
        shutil.copytree(sweep.box("box-0"), made, symlinks=True)
        tag = f"sweepstack-{sweep.identity}-{name}-g1"
        _rewrite(made / "box.json", native_id=made.name, name=name, tag=tag)
        (made / "tag").write_text(f"{tag}\n")
    for name in ("box-3", "box-7"):
        shutil.copy(_birth(sweep, "box-0"), _birth(sweep, name))
        tag = f"sweepstack-{sweep.identity}-{name}-g1"
        _rewrite(_birth(sweep, name), box=name, tag=tag, native_id=None, created_at=None)


def odd_entries(sweep: Sweep) -> None:
    """box-0 was edited to look cleared, and one that it replaced was not deleted yet; the entry of box-1 does not
    read."""
    first, second = _resources(sweep, "Box")
    sweep.export["deployment"]["resources"].append(json.loads(json.dumps(first)) | {"delete": True})
    first["outputs"]["clearance"] = "cleared by receipt sha256:00, 3/3 verified"
    for part in ("inputs", "outputs"):
        second[part].pop("native_id", None)


# The stack file


def torn_file(sweep: Sweep) -> None:
    """The stack file was cut in the middle."""
    text = sweep.stack_file.read_bytes()
    sweep.stack_file.write_bytes(text[: len(text) // 2] + b"\0" * 9)


def no_file(sweep: Sweep) -> None:
    """There is no stack file."""
    sweep.stack_file.unlink()


def kept_file(sweep: Sweep) -> None:
    """An `up` kept a copy of the stack file in the evidence."""
    copy = sweep.evidence / "stack-files" / sweep.stack_file.name
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(sweep.stack_file, copy)


def candidates(words: str) -> Change:
    """The stack file names other candidates."""

    def change(sweep: Sweep) -> None:
        text = sweep.stack_file.read_text()
        sweep.stack_file.write_text(text.replace("candidates: [local]", f"candidates: {words}"))

    return change


def renamed_project(sweep: Sweep) -> None:
    """The checkout is another project's."""
    (sweep.checkout / "Pulumi.yaml").write_text("name: mine\nruntime: python\nstackConfigDir: stacks\n")


# The evidence, and what this computer remembers of it


def remembered(*more: str) -> Change:
    """This computer has on record where the evidence is; and that it is at these places beside it, too."""

    def change(sweep: Sweep) -> None:
        memory = sweep.root / "data" / "sweepstack" / "evidence" / f"{STACK}.txt"
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text("".join(f"file://vm{sweep.evidence}{one}\n" for one in ("", *more)))

    return change


def copied(sweep: Sweep) -> None:
    """The evidence was copied into a folder beside it."""
    shutil.copytree(sweep.evidence, f"{sweep.evidence}-b")


def gone(sweep: Sweep) -> None:
    """The evidence is not there."""
    shutil.rmtree(sweep.evidence)


def beside(sweep: Sweep) -> None:
    """The evidence was moved by hand, into a folder beside it."""
    sweep.evidence.rename(sweep.evidence.with_name("kept"))


def moved(sweep: Sweep) -> None:
    """The evidence says that it was moved to a bucket."""
    to = {"to": "s3://lab-results/new", "identity": sweep.identity, "at": "2026-11-21T09:00:00Z"}
    (sweep.evidence / "moved-to.json").write_text(json.dumps(to))


def newer(sweep: Sweep) -> None:
    """The evidence was written by a version that is to come."""
    _rewrite(sweep.evidence / "sweep.json", schema=99)


def no_records(sweep: Sweep) -> None:
    """No record of any box is left, and the state is empty: only the boxes themselves know of each other."""
    orphaned(sweep)
    shutil.rmtree(sweep.evidence / "records")
    shutil.rmtree(sweep.evidence / "code")


def torn_volume(sweep: Sweep) -> None:
    """What was sealed on the volume is not what it was."""
    (file,) = (sweep.local / "volumes").glob("*/content/*/cells/seed1/metrics.json")
    file.write_text(file.read_text().replace("5", "6"))


def held_elsewhere(sweep: Sweep) -> None:
    """Another computer's backend holds the sweep."""
    lease = {"schema": 1, "backend": "file://laptop-7/home/me/state", "host": "laptop-7"}
    path = sweep.evidence / "records" / "lease.json"
    path.write_text(json.dumps(lease | {"taken_at": sweep.now.isoformat()}))


def no_registry(sweep: Sweep) -> None:
    """The local platform has lost which account it is."""
    (sweep.local / "registry.json").unlink()


def torn_registry(sweep: Sweep) -> None:
    """What the local platform wrote of its account does not read."""
    (sweep.local / "registry.json").write_text("{")


def unanswered(sweep: Sweep) -> None:
    """Of box-0 the record has no id: the answer was lost."""
    _rewrite(_birth(sweep, "box-0"), native_id=None, created_at=None, asked_at=sweep.now.isoformat())


def torn_launch(sweep: Sweep) -> None:
    """The state is empty, and the record of what box-0 was given does not read."""
    orphaned(sweep)
    (sweep.evidence / "records" / "launches" / "box-0-g1.json").write_text("{")


def torn_birth(sweep: Sweep) -> None:
    """Every box is gone, and the record of one does not read."""
    ended(sweep)
    _birth(sweep, "box-0").write_text("{")


def ended_too_early(sweep: Sweep) -> None:
    """The records say that every box has ended; the state is empty, and the boxes are there."""
    orphaned(sweep)
    for box in ("box-0", "box-1"):
        _rewrite(_birth(sweep, box), ended_at=sweep.now.isoformat(), ended_how="cleared")
