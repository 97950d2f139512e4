"""What can be lost or damaged: every record, file, host and backend of a sweep, and the ways in which."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.states.world import HERE, World

FILES = {
    # in the evidence
    "marker": "evidence/sweep.json",
    "birth": "evidence/records/births/*.json",
    "launch": "evidence/records/launches/*.json",
    "clearance": "evidence/records/clearances/*.json",
    "lease": "evidence/records/lease.json",
    "ledger": "evidence/records/ledger/*.json",
    "latest receipt": "evidence/records/latest-receipt",
    "file index": "evidence/records/files-*.json",
    "open teardown": "evidence/records/teardown.json",
    "receipt": "evidence/receipts/*.json",
    "pulled journal": "evidence/journals/*.jsonl",
    "pulled artifact": "evidence/cells/*/model.safetensors",
    "pulled manifest": "evidence/cells/*/manifest.json",
    "pulled log": "evidence/cells/*/log.txt",
    "pulled metrics": "evidence/cells/*/metrics.json",
    "kept code": "evidence/code/*.tar",
    "kept stack file": "evidence/stack-files/**/*.yaml",
    # on the box
    "journal": "data/sweepstack/local/boxes/*/data/sweep/journal.jsonl",
    "queue": "data/sweepstack/local/boxes/*/data/sweep/queue.jsonl",
    "spec": "data/sweepstack/local/boxes/*/data/sweep/spec.json",
    "owner": "data/sweepstack/local/boxes/*/data/sweep/owner.json",
    "runner's pid": "data/sweepstack/local/boxes/*/data/sweep/runner.pid",
    "shipped list": "data/sweepstack/local/boxes/*/data/sweep/shipped/*.json",
    "shipped code": "data/sweepstack/local/boxes/*/data/sweep/code/*/train.py",
    "patrol": "data/sweepstack/local/boxes/*/data/sweep/patrol.jsonl",
    "box's record": "data/sweepstack/local/boxes/*/box.json",
    "box's tag": "data/sweepstack/local/boxes/*/tag",
    # of the platform, and of this computer
    "registry": "data/sweepstack/local/registry.json",
    "volume's record": "data/sweepstack/local/volumes/*/volume.json",
    "sealed artifact": "data/sweepstack/local/volumes/*/content/*/cells/*/model.safetensors",
    "sealed manifest": "data/sweepstack/local/volumes/*/content/*/cells/*/manifest.json",
    "where the evidence was": "data/sweepstack/evidence/*.txt",
    # of the checkout, and of the engine
    "stack file": "checkout/stacks/Pulumi.t.yaml",
    "profile": "checkout/profiles/local.md",
    "state": "backend/.pulumi/stacks/*/t.json",
}
"""Kind → where its files are, below the sweep's folder. `test_every_file_is_of_a_kind` looks for others."""
OF_NO_KIND = (
    "evidence/.pull.lock",
    "evidence/staging/*",
    "data/sweepstack/local/registry.lock",
    "data/sweepstack/local/boxes/.registry",
    "data/sweepstack/local/volumes/.registry",
    "data/sweepstack/local/boxes/*/data/sweep/cells/*",
    "data/sweepstack/local/boxes/*/data/sweep/checkpoint/*",
    "data/sweepstack/local/boxes/*/data/sweep/runner-*",
    "data/sweepstack/local/boxes/*/data/sweep/*.lock",
    "data/sweepstack/local/boxes/*/data/sweep/runner.log",
    "evidence/box-logs/*",
    "evidence/records/box-logs/*",
    "data/sweepstack/local/volumes/*/content/*/cells/*/log.txt",
    "data/sweepstack/local/volumes/*/content/*/cells/*/metrics.json",
    "data/sweepstack/local/volumes/*/content/*/checkpoints/*",
)
"""Locks, logs, what a cell is at work on, and the runner's own code: no decision is made from them."""


@dataclass(frozen=True)
class Loss:
    """`bring`: makes the world as it is after the loss. False: there is nothing of that here to lose.

    `newer`: a newer version wrote it, and updating helps.
    """

    thing: str
    how: str
    bring: Callable[[World], bool]
    newer: bool = False

    @property
    def name(self) -> str:
        return f"{self.thing}: {self.how}"


def files_of(world: World, pattern: str) -> list[Path]:
    return [path for path in sorted(world.base.glob(pattern)) if path.is_file()]


def _gone(path: Path) -> bool:
    path.unlink()
    return True


def _empty(path: Path) -> bool:
    path.write_bytes(b"")
    return True


def _torn(path: Path) -> bool:
    """Half of it, and zeros: a power cut."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\0" * (len(data) - len(data) // 2))
    return bool(data)


def _other_schema(path: Path) -> bool:
    """What a newer version would write, where it is a record of one object."""
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return False
    if not isinstance(document, dict):
        return False
    path.write_text(json.dumps({**document, "schema": 99, "from_the_future": True}))
    return True


def _folder(path: Path) -> bool:
    """A folder of that name: nothing can be written there, and nothing read."""
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    return True


DAMAGES: dict[str, Callable[[Path], bool]] = {
    "gone": _gone,
    "empty": _empty,
    "torn": _torn,
    "of a newer version": _other_schema,
    "a folder": _folder,
}


def _of_files(pattern: str, damage: Callable[[Path], bool]) -> Callable[[World], bool]:
    return lambda world: bool({damage(path) for path in files_of(world, pattern)} - {False})


def _removed(pattern: str) -> Callable[[World], bool]:
    def bring(world: World) -> bool:
        found = sorted(world.base.glob(pattern))
        for folder in found:
            shutil.rmtree(folder)
        return bool(found)

    return bring


def _read_only(folder: str) -> Callable[[World], bool]:
    def bring(world: World) -> bool:
        path = world.base / folder
        world.read_only = (*world.read_only, path)
        return path.is_dir()

    return bring


def _vanished(world: World) -> bool:
    """The boxes were deleted by hand: folders and processes."""
    for native_id in world.native_ids():
        world.kill_box(native_id)
        shutil.rmtree(world.platform_root / "boxes" / native_id)
    return True


def _killed(world: World) -> bool:
    """A power cut: all processes of the boxes died."""
    for native_id in world.native_ids():
        world.kill_box(native_id)
    return True


def _renamed(world: World) -> bool:
    world.host = HERE
    return True


def _another_backend(world: World) -> bool:
    """The backend is lost, and the new one has another URL."""
    shutil.rmtree(world.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    other = world.base / "backend-b"
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    world.env["PULUMI_BACKEND_URL"] = f"file://{other}"
    return True


def _same_backend(world: World) -> bool:
    """The backend is lost, and made again at the same place."""
    folder = Path(world.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    shutil.rmtree(folder)
    folder.mkdir()
    return True


def _read(path: Path) -> dict[str, Any] | None:
    """A document of the engine; None for one that another loss damaged already."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError:
        return None
    return document


def _no_entries(*kinds: str) -> Callable[[World], bool]:
    """`pulumi state delete` of these kinds."""

    def bring(world: World) -> bool:
        for path in files_of(world, FILES["state"]):
            if (document := _read(path)) is None:
                return False
            latest = document["checkpoint"]["latest"]
            latest["resources"] = [
                one for one in latest.get("resources", []) if str(one["type"]).rsplit(":", 1)[-1] not in kinds
            ]
            path.write_text(json.dumps(document))
        return True

    return bring


def _state_of_newer(world: World) -> bool:
    """Each entry of ours has a field that this version does not know."""
    for path in files_of(world, FILES["state"]):
        if (document := _read(path)) is None:
            return False
        for one in document["checkpoint"]["latest"].get("resources", []):
            if one.get("custom") and str(one["type"]).startswith("sweepstack:index:"):
                one["inputs"]["from_the_future"] = one["outputs"]["from_the_future"] = True
        path.write_text(json.dumps(document))
    return True


def _another_evidence_disk(world: World) -> bool:
    """`pull_to` of the stack file names another folder by mistake."""
    if not world.config_file.is_file() or b"\0" in world.config_file.read_bytes():
        return False
    world.edit_config(lambda sweep: sweep.update(pull_to=str(world.base / "elsewhere")))
    return True


WHOLE = (
    Loss("evidence", "gone", _removed("evidence")),
    Loss("evidence", "on a read-only disk", _read_only("evidence")),
    Loss("records", "gone", _removed("evidence/records")),
    Loss("receipts", "gone", _removed("evidence/receipts")),
    Loss("pulled cells", "gone", _removed("evidence/cells")),
    Loss("volumes", "gone", _removed("data/sweepstack/local/volumes/[!.]*")),
    Loss("data folder of the box", "gone", _removed("data/sweepstack/local/boxes/*/data")),
    Loss("boxes", "deleted by hand", _vanished),
    Loss("boxes", "without power", _killed),
    Loss("work dir", "gone", _removed("job")),
    Loss("this computer's data", "on a read-only disk", _read_only("data")),
    Loss("stack files", "on a read-only disk", _read_only("checkout/stacks")),
    Loss("this computer", "renamed", _renamed),
    Loss("backend", "lost, at another URL now", _another_backend),
    Loss("backend", "lost, made anew", _same_backend),
    Loss("box in the state", "gone", _no_entries("Box", "Queue", "Gate")),
    Loss("queue in the state", "gone", _no_entries("Queue", "Gate")),
    Loss("gate in the state", "gone", _no_entries("Gate")),
    Loss("identity in the state", "gone", _no_entries("Identity")),
    Loss("entries of the state", "of a newer version", _state_of_newer, newer=True),
    Loss("pull_to", "another folder", _another_evidence_disk),
)


def losses() -> Iterator[Loss]:
    """All of them, each once."""
    for thing, pattern in FILES.items():
        for how, damage in DAMAGES.items():
            yield Loss(thing, how, _of_files(pattern, damage), newer=how == "of a newer version")
    yield from WHOLE


ALL: dict[str, Loss] = {loss.name: loss for loss in losses()}


def is_known(name: str) -> bool:
    """Whether a file (below the sweep's folder) is of a kind, or of none that decides anything."""
    from fnmatch import fnmatch

    return any(fnmatch(name, pattern.replace("**/", "*")) for pattern in (*FILES.values(), *OF_NO_KIND))


def bring(world: World, *names: str) -> Callable[[], None] | None:
    """Makes the losses of these names. Returns what an update of this checkout mends, where one is of a newer version.

    None where one of them finds nothing to lose.
    """
    undo: list[tuple[Path, bytes]] = []
    for name in names:
        loss = ALL[name]
        before = _contents(world) if loss.newer else {}
        if not loss.bring(world):
            return None
        after = _contents(world) if loss.newer else {}
        undo += [(path, data) for path, data in before.items() if path.exists() and after.get(path) != data]

    def update() -> None:
        for path, data in undo:
            if path.is_file():
                path.write_bytes(data)

    return update


def _contents(world: World) -> dict[Path, bytes]:
    folders = ("evidence", "data", "backend", "checkout/stacks")
    return {
        path: path.read_bytes()
        for folder in folders
        for path in (world.base / folder).rglob("*")
        if path.is_file() and os.access(path, os.R_OK)
    }
