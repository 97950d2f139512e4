"""Golden sweeps as they stood: the records of one, put back at a moment of its life. Its boxes are there again, as the
local platform keeps them; those on a host or a cluster are not. Only the engine is a stand-in, which prints the state
that the real one wrote."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

GOLDEN = Path(__file__).resolve().parents[1]
STACK = "t"
ENGINE = """\
#!/bin/sh
if [ -f {state}.error ]; then /bin/cat {state}.error >&2; exit 6; fi
if [ -f {state}.none ]; then case "$1 $2" in
  "stack export") echo "error: no stack named '$4' found" >&2; exit 255 ;;
  "stack ls") echo '[]'; exit ;;
esac; fi
case "$1 $2" in
  "stack export") exec /bin/cat {state} ;;
  "stack ls") echo '[{{"name": "{stack}"}}]' ;;
  "stack history") echo '[]' ;;
  "whoami "*) echo '{{"url": "file://{backend}"}}' ;;
  *) echo "error: this engine only shows its state" >&2; exit 255 ;;
esac
"""
STORE = b"""\
config:
  sweepstack:store:
    platform: local
    volumes:
      abl: {size: 2GB, keep_until: 2031-01-31}
    pull_to: results/keep
"""
Change = Callable[["Sweep"], None]


@dataclass(frozen=True)
class Moment:
    """A golden sweep, the time of day, which of its states the engine has, and what is done to the sweep then."""

    archive: str
    now: datetime
    state: str
    changes: tuple[Change, ...] = ()


class Sweep:
    """One that was put back into `folder`, which is empty. Its files are as old as the clock says."""

    def __init__(self, folder: Path, moment: Moment) -> None:
        self.folder, self.root, self.now = folder, folder / "sweep", moment.now
        self.checkout, self.evidence = self.root / "checkout", self.root / "evidence"
        self.local = self.root / "data" / "sweepstack" / "local"
        self.held: list[IO[bytes]] = []
        files = files_of(GOLDEN / moment.archive)
        then = re.search(rb"/tmp/golden-\w{8}", files["stack.yaml"])
        assert then is not None
        self.here = lambda data: data.replace(then[0], str(folder).encode())
        for name, data in files.items():
            if name.startswith("evidence/"):  # what is chained by digests keeps the path that it had
                _put(self.root / name, self.here(data) if name.startswith("evidence/records/") else data)
        self.stack_file = self.checkout / "stacks" / f"Pulumi.{STACK}.yaml"
        _put(self.stack_file, self.here(files["stack.yaml"]))
        _put(self.checkout / "Pulumi.yaml", b"name: sweepstack\nruntime: python\nstackConfigDir: stacks\n")
        self.export: dict[str, Any] = json.loads(self.here(files[moment.state]))
        self.identity = self.of("Identity")[0]["identity"]
        policy = json.loads(self.of("Identity")[0].get("policy") or '{"chains": []}')
        for chain in policy["chains"]:
            _put(self.checkout / "policy.yaml", chain["links"][-1]["policy"]["text"].encode())
        self._work_dir()
        if {box["adapter"] for box in self.of("Box")} == {"local"}:
            self._rent()
        for change in moment.changes:
            change(self)
        self._engine()
        for path in self.root.rglob("*"):
            os.utime(path, (self.now.timestamp() - 60, self.now.timestamp() - 60), follow_symlinks=False)

    def end(self) -> None:
        """Lets go of what its runners held."""
        for held in self.held:
            held.close()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """What the state says of its resources of this kind."""
        resources = self.export["deployment"]["resources"]
        return [one["outputs"] for one in resources if one["type"] == f"sweepstack:index:{kind}"]

    def box(self, name: str) -> Path:
        """The folder of a box."""
        (found,) = (box["native_id"] for box in self.of("Box") if box["name"] == name)
        return self.local / "boxes" / str(found)

    def _work_dir(self) -> None:
        (queue, *_) = self.of("Queue")
        code = self.evidence / "code" / f"{queue['job']['code'].removeprefix('sha256:')}.tar"
        if code.exists():
            for name, data in files_of(code).items():
                _put(self.root / "job" / name, data)

    def _rent(self) -> None:
        """The registry, volumes and boxes of the local platform."""
        account = self.of("Box")[0]["account"].rpartition("/")[2]
        facts = {"schema": 1, "id": account, "also_known_as": [], "marked": True, "volumes_marked": True}
        _put(self.local / "registry.json", _json(facts))
        for kind in ("boxes", "volumes"):
            _put(self.local / kind / ".registry", f"{account}\n".encode())
        for volume in self.of("Volume"):
            name, native_id = volume["name"], volume["native_id"]
            tag = f"sweepstack-{self.identity}-volume-{name}"
            known = {"schema": 1, "native_id": native_id, "tag": tag, "name": name, "created_at": self.created}
            place = self.local / "volumes" / native_id
            _put(place / "volume.json", _json(known))
            shutil.copytree(self.evidence / "cells", place / "content" / self.identity / "cells")
        for box in self.of("Box"):
            self._box(box)

    @property
    def created(self) -> str:
        return str(json.loads((self.evidence / "sweep.json").read_text())["created_at"])

    def _box(self, box: dict[str, Any]) -> None:
        place, name = self.local / "boxes" / box["native_id"], f"{box['name']}-g{box['generation']}"
        known = {field: box[field] for field in ("native_id", "tag", "name", "price_per_hour", "created_at", "mounts")}
        known |= {"schema": 1, "ready_at": box["created_at"], "resources": box["resources"]}
        known["created_at"] = known["ready_at"] = box["created_at"].replace("Z", "+00:00")
        _put(place / "box.json", _json(known))
        _put(place / "tag", box["tag"].encode())
        (place / "scratch").mkdir()
        home = place / "data" / "sweep"
        _put(home / "journal.jsonl", (self.evidence / "journals" / f"{name}.jsonl").read_bytes())
        for log in (self.evidence / "box-logs" / name).glob("*"):
            _put(home / log.name, log.read_bytes())
        _put(home / "runner.lock", b"")
        for mount, volume in box["mounts"].items():
            (place / mount).parent.mkdir(exist_ok=True)
            (place / mount).symlink_to(f"../../../volumes/{volume}/content")
        for attempt in (self.evidence / "unsealed").glob(f"*/{name}-*"):
            shutil.copytree(attempt, home / "cells" / attempt.parent.name / attempt.name.rpartition("-")[2])
        for sealed in (self.evidence / "cells").glob("*/manifest.json"):
            manifest = json.loads(sealed.read_text())
            if manifest["native_id"] == box["native_id"]:
                into = home / "cells" / manifest["cell"] / str(manifest["attempt"])
                for file in manifest["files"]:
                    own = file["path"] if file["role"] == "log" else f"out/{file['path']}"
                    _put(into / own, (sealed.parent / file["path"]).read_bytes())

    @property
    def state(self) -> Path:
        """What the engine prints; with `.error` behind its name, what it complains of instead; `.none`: it has none."""
        return self.root / "state.json"

    def _engine(self) -> None:
        state, launcher = self.state, self.folder / "bin" / "pulumi"
        state.write_text(json.dumps(self.export))
        launcher.write_text(ENGINE.format(state=state, stack=STACK, backend=self.folder / "backend"))
        launcher.chmod(0o755)


# What is done to a sweep at its moment


def not_ended(sweep: Sweep) -> None:
    """The records of the time before its boxes were ended."""
    records = sweep.evidence / "records"
    for birth in (records / "births").glob("*.json"):
        _put(birth, _json(json.loads(birth.read_text()) | {"ended_at": None, "ended_how": None}))
    for line in (records / "ledger").glob("*.json"):
        if json.loads(line.read_text())["phase"] == "ended":
            line.unlink()
    shutil.rmtree(records / "clearances")


def not_approved(sweep: Sweep) -> None:
    """The stack file before anything was approved, and nothing that was pulled later."""
    not_ended(sweep)
    text = sweep.stack_file.read_text()
    sweep.stack_file.write_text(
        re.sub(r"(?m)^    # Written by `sweepctl approve`.*\n    approval:\n(?:      .*\n)+", "", text)
    )
    for folder in ("records/box-logs", "box-logs", "stack-files"):
        shutil.rmtree(sweep.evidence / folder, ignore_errors=True)  # an old sweep has not all


def not_pulled(sweep: Sweep) -> None:
    """Nothing was copied yet."""
    not_approved(sweep)
    for folder in ("cells", "code", "journals", "receipts", "unsealed", "records/unsealed"):
        shutil.rmtree(sweep.evidence / folder)
    for file in (sweep.evidence / "records").glob("files-*"):
        file.unlink()
    (sweep.evidence / "records" / "latest-receipt").unlink()


def still_running(box: str, cell: str, *, alive: bool = True, verdict: str = "") -> Change:
    """The last attempt of a cell is at work: it has printed something, and its runner is `alive`. `verdict`: what the
    patrol says of the cell."""

    def change(sweep: Sweep) -> None:
        home = sweep.box(box) / "data" / "sweep"
        journal = home / "journal.jsonl"
        lines = journal.read_text().splitlines(keepends=True)
        seals = [number for number, line in enumerate(lines) if _is_seal(line, cell)]
        attempt = json.loads(lines[seals[-1]])["attempt"]
        journal.write_text("".join(lines[: seals[-1]]))
        shutil.rmtree(next((sweep.local / "volumes").glob(f"*/content/{sweep.identity}/cells/{cell}")))
        begun = home / "cells" / cell / str(attempt)
        shutil.rmtree(begun / "out")
        (begun / "out").mkdir()
        log = begun / "log.txt"
        log.write_text(log.read_text().partition("\n")[0] + "\n")
        if verdict:
            patrol = home / "patrol.jsonl"
            *before, last = patrol.read_text().splitlines()
            seen = json.loads(last)
            seen["running"][0] |= {"verdict": verdict, "why": "no CPU and no output", "quiet_seconds": 700}
            patrol.write_text("\n".join([*before, json.dumps(seen)]) + "\n")
        if alive:
            sweep.held.append(open(home / "runner.lock", "ab"))  # noqa: SIM115 - held as long as the moment is shown
            fcntl.flock(sweep.held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)

    return change


def stopped(sweep: Sweep) -> None:
    """Its boxes are at rest: their data is kept."""
    for box in sweep.of("Box"):
        at = {"schema": 1, "state": "stopped", "at": sweep.now.isoformat()}
        _put(sweep.local / "boxes" / box["native_id"] / "power.json", _json(at))


def ended(sweep: Sweep) -> None:
    """Its boxes are gone, and nothing is in the state; the volume outlives them."""
    shutil.rmtree(sweep.local / "boxes")
    _put(sweep.local / "boxes" / ".registry", (sweep.local / "volumes" / ".registry").read_bytes())
    sweep.export["deployment"]["resources"] = []


def damaged(sweep: Sweep) -> None:
    """A box was deleted by hand, a copy of an artifact is torn, and a record of the evidence does not read."""
    shutil.rmtree(sweep.box("box-1"))
    artifact = sweep.evidence / "cells" / "seed1" / "model.safetensors"
    artifact.write_bytes(artifact.read_bytes()[:-100])
    (sweep.evidence / "records" / "launches" / "box-1-g1.json").write_bytes(b"\0" * 80)


def silent(sweep: Sweep) -> None:
    """No box answers: the local platform can't be asked."""
    sweep.local.rename(sweep.local.with_name("elsewhere"))


def unread(sweep: Sweep) -> None:
    """The evidence can't be used: the file that says whose it is does not read."""
    (sweep.evidence / "sweep.json").write_bytes(b"\0" * 80)


def never_up(sweep: Sweep) -> None:
    """Nothing was brought up yet: there is a stack file, and nothing else."""
    not_approved(sweep)
    ended(sweep)
    shutil.rmtree(sweep.evidence)
    shutil.rmtree(sweep.local)


def orphaned(sweep: Sweep) -> None:
    """The state was lost while both boxes bill: it is empty."""
    sweep.export["deployment"]["resources"] = []


def half_ended(sweep: Sweep) -> None:
    """A `pulumi destroy` was cut off: one box is gone, the other one there, and the engine keeps what it was at."""
    first, second = sweep.of("Box")
    ids = [first["native_id"], second["native_id"]]
    begun = {"schema": 1, "receipt": None, "native_ids": ids, "ended": ids[:1], "begun_at": sweep.now.isoformat()}
    _put(sweep.evidence / "records" / "teardown.json", _json(begun))
    shutil.rmtree(sweep.local / "boxes" / ids[0])
    resource = {"urn": f"urn:pulumi:t::sweepstack::sweepstack:index:Box::{second['name']}"}
    pending = {"type": "deleting", "resource": resource | {"type": "sweepstack:index:Box"}}
    sweep.export["deployment"]["pending_operations"] = [pending]


def elsewhere(sweep: Sweep) -> None:
    """The evidence is a folder of another computer."""
    text = json.dumps(sweep.export).replace("file://vm/", "file://laptop-7/")
    sweep.export = json.loads(text)


def no_answer(sweep: Sweep) -> None:
    """The engine can't read its state."""
    sweep.state.with_name("state.json.error").write_text("error: unable to open the state's bucket\n")


def edited(sweep: Sweep) -> None:
    """A person added a cell and took another artifact into the stack file; no `up` has seen it."""
    text = sweep.stack_file.read_text().replace("seed: [0, 1, 2, 3]", "seed: [0, 1, 2, 3, 4]")
    sweep.stack_file.write_text(text.replace("keys: [w1]", "keys: [w1, w2]"))


def store(sweep: Sweep) -> None:
    """A stack `keep` of volumes that outlive sweeps; nothing was brought up yet."""
    never_up(sweep)
    _put(sweep.stack_file.with_name("Pulumi.keep.yaml"), STORE)


def _is_seal(line: str, cell: str) -> bool:
    event = json.loads(line)
    return event["event"] == "cell-sealed" and event["cell"] == cell


@functools.cache
def files_of(archive: Path) -> dict[str, bytes]:
    """Path → content of the files in a tar archive."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as opened:
        for member in opened:
            with contextlib.suppress(KeyError):
                if (file := opened.extractfile(member)) is not None:
                    found[member.name] = file.read()
    return found


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"
