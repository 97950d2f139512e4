"""What is put on a box before its queue is told anything: code, runner, settings, secrets.

A version of the code is one tar file whose bytes depend on its content alone. Beside it is recorded where it came from.
That is no part of any digest: the same files are the same code, whatever commit they were in. No URL of a remote is
kept: people put tokens into those.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sweepstack.channel import agent_source
from sweepstack.core import trackers
from sweepstack.core.journal import Journal
from sweepstack.core.records import SCHEMA
from sweepstack.core.workdir import Shipment, collect
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.spec import LaunchSpec
from sweepstack.onbox.agent.channel import Channel, Scheduled
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import canonical_json, digest_of, file_sha256, sha256_hex
from sweepstack.onbox.common.errors import ConfigError, EvidenceDamaged, EvidenceMissing, NotAFile
from sweepstack.onbox.common.units import spell_bytes

RETRIES = 1
SECRET_MODE = 0o600
FOUND = ".found-changed"
"""The ending of the copy that is kept on the box of a file that was changed there and is shipped again."""
Files = list[tuple[str, Path, int]]


def ship(
    spec: LaunchSpec, codes: Iterable[str], channel: Channel, store: EvidenceStore, progress: Callable[[str], None]
) -> None:
    """Copies versions of the code beside those that are there. The work dir's own is archived in the evidence first;
    another one comes from there, and so does one that is there and that the work dir is not.

    Raises ConfigError when the work dir changed since the preview, EvidenceError for an archive that can't be used.
    """
    for code in sorted(set(codes)):
        if code == spec.code:
            _ship_workdir(spec, channel, store, progress)
        elif not _is_there(channel, box_layout.code_dir(code)):
            _ship_archived(code, channel, store, progress)


def _ship_archived(code: str, channel: Channel, store: EvidenceStore, progress: Callable[[str], None]) -> None:
    with unpacked(_archived(store, code), code) as files:
        progress(f"shipping {len(files)} file(s) of code {box_layout.short(code)} from the evidence")
        channel.put_tree(files, box_layout.code_dir(code))
        _write_list(channel, code, files)


def _ship_workdir(spec: LaunchSpec, channel: Channel, store: EvidenceStore, progress: Callable[[str], None]) -> None:
    shipment, known = collect(spec.workdir, spec.job.include, spec.own), store.codes()
    if shipment.digest != spec.code and spec.code in known:  # the project's own files were part of that version
        _ship_archived(spec.code, channel, store, progress)
        return
    if shipment.digest != spec.code:
        raise ConfigError(f"{spec.workdir} changed between preview and up; run the command again")
    if spec.code not in known:
        store.write_code(spec.code, pack(spec.workdir, shipment))
    progress(f"shipping {len(shipment.files)} file(s), {spell_bytes(shipment.bytes)}")
    files = ((file.path, spec.workdir / file.path, file.mode) for file in shipment.files)
    channel.put_tree(files, box_layout.code_dir(spec.code))
    write_changed(
        channel,
        box_layout.shipped_list(spec.code),
        canonical_json([[file.path, file.mode, file.sha256] for file in shipment.files]),
    )
    record_provenance(channel, spec.code, spec.workdir)


def ship_lists(spec: LaunchSpec, codes: Iterable[str], channel: Channel, store: EvidenceStore) -> None:
    """Writes the list of files beside each version of the code that lacks it: without one the runner starts no cell.

    Boxes that an older version of this program gave their code have none. Raises ConfigError, EvidenceError.
    """
    for code in sorted(set(codes)):
        if channel.size(box_layout.shipped_list(code)) is None and _is_there(channel, box_layout.code_dir(code)):
            with _files_of(spec, code, store) as files:
                _write_list(channel, code, files)


def ship_again(
    spec: LaunchSpec,
    codes: Iterable[str],
    channel: Channel,
    store: EvidenceStore,
    journal: Journal,
    progress: Callable[[str], None],
) -> None:
    """Ships files again that the runner found changed or missing on the box. A changed one is kept beside it.

    `codes`: those that cells still are to run with. Raises ConfigError, EvidenceError, Unreachable.
    """
    for code in sorted(set(codes)):
        problem = _found_changed(journal, code)
        if problem is None:
            continue
        with _files_of(spec, code, store) as files:
            folder = box_layout.code_dir(code)
            channel.put_tree(files, folder)  # where the whole folder is gone
            for path, source, mode in files:
                if path in problem:
                    progress(f"{path} was changed on the box: shipping it again as code {box_layout.short(code)}")
                    _replace(channel, f"{folder}/{path}", source.read_bytes(), mode)
            _write_list(channel, code, files)


def _found_changed(journal: Journal, code: str) -> set[str] | None:
    """The files that the runner last refused to start cells with; None where it has started some of this code since."""
    for entry in reversed(journal.entries):
        if entry.get("code") == code and entry["event"] == "cell-started":
            return None
        if entry.get("code") == code and entry["event"] == "setup-failed":
            return {str(path) for path in entry.get("files", ())} if entry.get("stage") == "code" else None
    return None


def _replace(channel: Channel, path: str, data: bytes, mode: int) -> None:
    try:
        found = channel.read(path)
    except (FileNotFoundError, NotAFile):
        found = data
    kept, number = path + FOUND, 1
    while found != data and channel.size(kept) is not None and channel.read(kept) != found:
        number += 1
        kept = f"{path}{FOUND}-{number}"  # an earlier change is kept, too
    if found != data:
        channel.write(kept, found)
    channel.write(path, data, mode=mode)


@contextlib.contextmanager
def _files_of(spec: LaunchSpec, code: str, store: EvidenceStore) -> Iterator[Files]:
    """The files of a version: the work dir's own, where that still is this version, else from the evidence."""
    if code == spec.code:
        with contextlib.suppress(ConfigError):
            shipment = collect(spec.workdir, spec.job.include, spec.own)
            if shipment.digest == code:
                yield [(file.path, spec.workdir / file.path, file.mode) for file in shipment.files]
                return
    with unpacked(_archived(store, code), code) as files:
        yield files


def _write_list(channel: Channel, code: str, files: Files) -> None:
    content = [[path, mode, file_sha256(source)] for path, source, mode in files]
    channel.write(box_layout.shipped_list(code), canonical_json(content))


def _archived(store: EvidenceStore, code: str) -> bytes:
    data = store.read_code(code)
    if data is None:
        raise EvidenceMissing(f"the code {box_layout.short(code)} is not in {store.shown}, and a cell is pinned to it")
    return data


def _is_there(channel: Channel, folder: str) -> bool:
    try:
        channel.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def ship_runner(spec: LaunchSpec, channel: Channel) -> str:
    """Brings runner, checkpoint helper, secrets and settings up to date. Returns the runner's path below its home."""
    runner = bring_runner(channel)
    for source in checkpoint_files():
        write_changed(channel, f"{box_layout.HOME}/checkpoint/{source.name}", source.read_bytes())
    if spec.secrets is not None and (spec.secrets or channel.size(box_layout.SECRETS) is not None):
        write_changed(channel, box_layout.SECRETS, canonical_json(dict(spec.secrets)) + b"\n", mode=SECRET_MODE)
    # Also with one worker: its next try may begin on another node before the first is proved to have ended.
    known = {"shared": {"worker_state": channel.state_command()}} if isinstance(channel, Scheduled) else {}
    write_changed(channel, box_layout.SPEC, canonical_json(settings(spec, channel.python) | known) + b"\n")
    return runner


def bring_runner(channel: Channel) -> str:
    """The program alone. Returns its path below the box's home. Idempotent."""
    return f"{bring_program(channel, 'runner', runner_files())}/runner.py"


def bring_program(channel: Channel, name: str, files: Files) -> str:
    """Puts a program on the box, a folder a version: one that runs keeps the files that it was started from. Returns
    the folder's path below the box's home. Idempotent. Raises Unreachable."""
    folder = f"{name}-{sha256_hex(b''.join(source.read_bytes() for _, source, _ in files))[:12]}"
    channel.put_tree(files, f"{box_layout.HOME}/{folder}")
    return folder


def runner_files() -> Files:
    """What the runner is made of: (path in its folder, source, mode). `runner.py` starts it, and imports the rest;
    `nodes.py` starts what a cell over several nodes needs, where that extension is installed."""
    parts = [(name, source) for name in ("runner", "nodes") for source in agent_source.sources(name)]
    starts = [(f"{name}.py", source, 0o644) for name, source in parts if source.stem == "start"]
    return [*starts, *agent_source.files("common", "longer", "nodes", "runner")]


def checkpoint_files() -> list[Path]:
    """The modules that a user's job may import, by their bare names."""
    return agent_source.sources("checkpoint")


NOT_TOLD: Final = frozenset(
    {
        *("run", "setup"),  # stand in each line of the queue, with the code that they are for
        *("workdir", "include", "code", "mixing", "resume"),  # decide what is shipped, and which lines are written
        *("by_hand", "scheduler", "lease"),  # launching acts on them; of the lease, `LaunchSpec.lease` is told
        *("min_free_bytes", "min_free_inodes"),  # told as `min_free`
        "tracker",  # told as variables, and as `tracked`
    }
)
"""Keys of the job that `settings` does not hand on as they are. All others are told: a new key needs no line here."""


def settings(spec: LaunchSpec, python: str) -> dict[str, Any]:
    """spec.json. What was not asked for is left out: then the runner's own figures hold."""
    job = spec.job
    asked = job.model_dump(
        mode="json", exclude_defaults=True, exclude=dict.fromkeys(NOT_TOLD, True) | {"network": {"written"}}
    )
    least = {"bytes": job.min_free_bytes, "inodes": job.min_free_inodes}
    asked["min_free"] = {kind: count for kind, count in least.items() if count}
    off = {} if spec.way_off is None else {"path": spec.way_off}
    if job.when_drained is not None:
        asked["when_drained"] |= off
    if job.smoke is not None:
        asked["smoke"] |= {"code": job.code}
    how = spec.lease.get("how") or {}
    asked["lease"] = {**spec.lease, **({"how": how | off} if how.get("command") else {})}
    tracked = {} if job.tracker is None else {"tracked": trackers.places(job.tracker)}
    return {
        **{key: value for key, value in asked.items() if value or key == "grace_seconds"},
        **tracked,
        "schema": SCHEMA,
        "identity": spec.identity,
        "box": spec.box,
        "native_id": spec.native_id,
        "generation": spec.generation,
        "durable": box_layout.DURABLE,
        "slots": job.slots,
        "python": python,
        "env": {**trackers.variables(job.tracker, spec.identity), **job.env},
        "artifacts": [artifact.model_dump(mode="json") for artifact in spec.artifacts],
        "metrics": dict(spec.metrics) if spec.metrics else None,
        "retries": RETRIES if job.retries is None else job.retries,
        **({"priority": list(map(json.loads, spec.priority))} if spec.priority else {}),
    }


def write_changed(channel: Channel, path: str, data: bytes, *, mode: int = 0o644) -> None:
    """Writes a file of the box, unless it has these bytes. Raises Unreachable."""
    try:
        same = channel.read(path) == data
    except (FileNotFoundError, NotAFile):
        same = False
    if not same:
        channel.write(path, data, mode=mode)


GIT_SECONDS = 20.0


def git_facts(workdir: Path) -> dict[str, Any] | None:
    """`{commit, branch, dirty}` of the checkout that `workdir` is in; None outside any, or where git does not tell.

    `dirty`: tracked files below `workdir` differ from the commit, so that the commit alone does not say what ran.
    `branch` is null on a detached head. Never raises.
    """
    commit = _git(workdir, "rev-parse", "--verify", "HEAD")
    changed = _git(workdir, "status", "--porcelain", "--untracked-files=no", "--", ".")
    if not commit or changed is None:
        return None
    return {
        "commit": commit,
        "branch": _git(workdir, "symbolic-ref", "--short", "-q", "HEAD") or None,
        "dirty": bool(changed),
    }


def record_provenance(channel: Channel, code: str, workdir: Path) -> None:
    """Writes the facts of the work dir that `code` was just shipped from, unless they are there. Raises Unreachable."""
    path = box_layout.provenance_file(code)
    if channel.size(path) is not None:
        return
    facts = git_facts(workdir)
    if facts is not None:
        channel.write(path, canonical_json({"git": facts}) + b"\n")


def _git(workdir: Path, *arguments: str) -> str | None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(workdir), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, env=env, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def pack(workdir: Path, shipment: Shipment) -> bytes:
    """The tar of `shipment`, which was collected from `workdir`. The same shipment gives the same bytes.

    Raises ConfigError when a file is not what it was when it was collected.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in shipment.files:
            data = (workdir / file.path).read_bytes()
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise ConfigError(f"{workdir} changed while it was being read; run the command again")
            info = tarfile.TarInfo(file.path)
            info.size, info.mode, info.mtime = len(data), file.mode, 0
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def members(archive: bytes, digest: str) -> dict[str, tuple[int, str]]:
    """The files of an archive: path → its mode, SHA-256 as hex. Raises EvidenceDamaged as `unpacked` does."""
    with unpacked(archive, digest) as files:
        return {name: (mode, hashlib.sha256(file.read_bytes()).hexdigest()) for name, file, mode in files}


@contextlib.contextmanager
def unpacked(archive: bytes, digest: str) -> Iterator[list[tuple[str, Path, int]]]:
    """The files of an archive as (path, local file, mode), in a folder that lives as long as the context.

    Raises EvidenceDamaged for a tar that is none, that holds anything but plain files with plain paths, or whose
    content is not the version `digest`.
    """
    with tempfile.TemporaryDirectory(prefix="sweepstack-code-") as folder:
        files, content = [], []
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
                for number, info in enumerate(tar):
                    parts = PurePosixPath(info.name).parts
                    source = tar.extractfile(info) if info.isreg() else None
                    if source is None or not parts or info.name.startswith("/") or ".." in parts:
                        raise EvidenceDamaged(f"the archive of {digest} holds {info.name!r}, which is no plain file")
                    data = source.read()
                    target = Path(folder) / str(number)
                    target.write_bytes(data)
                    files.append((info.name, target, info.mode))
                    content.append([info.name, info.mode, hashlib.sha256(data).hexdigest()])
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise EvidenceDamaged(f"the archive of {digest} can't be read: {error}") from error
        if digest_of(content) != digest:
            raise EvidenceDamaged(
                f"the archive of {digest} in the evidence was edited or damaged: its content is not what its name says"
            )
        yield files
