"""Checks on the host, before anything is made there, that it has what a box needs.

All problems are in one message, each with its fix. Folders of the host (a shared file system, a net disk) that serve as
tiers are checked with it, and claimed: the provider or a person made the place, and ours in it is one folder,
`<place>/sweepstack`, with a random id in `place.json`, made once. Two hosts that read the same id see the same file
system; so two regions are told apart. A runner that finds no id sees an empty mount point instead of the tier.

Python 3.8 and the standard library: it is sent to the host with `host.agent`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.cgroup import memory
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import PlatformError, RequestRefused, Unreachable
from sweepstack.onbox.common.run_process import says
from sweepstack.onbox.host.box_folders import random_id, read_facts
from sweepstack.onbox.host.offers import GB, Constraints, same_gpu
from sweepstack.onbox.host.platform import BoxRequest

DRIVER_SECONDS = 20.0
LEAST_BYTES = 100 * 10**6
LEAST_INODES = 1_000
"""Room for a box's runner, records and logs, without the job's files."""
SLACK = 0.03
"""GPU memory may be less by this part: an 80 GB GPU reports 79.2."""

FOLDER, FACTS, KNOWN = "sweepstack", "place.json", "places.json"
PREFIX = "place-"
"""The ids of places begin with this. A box's facts name the places that outlive it by their ids."""


@dataclass(frozen=True)
class Card:
    """One GPU, as the driver shows it."""

    name: str
    memory_gb: float | None = None


def preflight(root: Path, request: BoxRequest) -> None:
    """Returns when the host has what `request` asks for. Raises RequestRefused with everything that it lacks; nothing
    was made. Blocks for seconds, writes nothing.

    Raises PlatformError when the GPU driver is there and does not answer.
    """
    asked = request.constraints
    lacks = [*_cards(asked), *_cpus(asked), *memory_lack(asked), *_system(), *_room(root, asked)]
    if lacks:
        lines = "".join(f"\n  {lack}" for lack in lacks)
        raise RequestRefused(f"this host won't do for {request.name}; nothing was made there:{lines}")


def _cards(asked: Constraints) -> Iterator[str]:
    if not asked.gpu_count:
        return
    there = cards()
    fitting = [card for card in there if _fits(card, asked)]
    if len(fitting) < asked.gpu_count:
        what = " or ".join(asked.gpu_names) or "GPU"
        if asked.gpu_memory_gb is not None:
            what += f" of {asked.gpu_memory_gb.value:g} GB{' or more' if asked.gpu_memory_gb.at_least else ''}"
        shown = ", ".join(_named(card) for card in there) or "none"
        yield f"{asked.gpu_count}× {what} asked for, and nvidia-smi shows {shown}: change resources.gpu, or the host"
    if asked.cuda and there:
        most = driver_cuda()
        if most is None:
            yield f"CUDA {asked.cuda} asked for, and nvidia-smi does not say what its driver does: leave gpu.cuda out"
        elif _version(most) < _version(asked.cuda):
            yield f"CUDA {asked.cuda} asked for, and its driver does {most} at most: update that, or lower gpu.cuda"


def _fits(card: Card, asked: Constraints) -> bool:
    named = not asked.gpu_names or any(same_gpu(name, card.name) for name in asked.gpu_names)
    if asked.gpu_memory_gb is None or card.memory_gb is None:
        return named
    return named and asked.gpu_memory_gb.admits(card.memory_gb, slack=SLACK)


def _named(card: Card) -> str:
    return card.name if card.memory_gb is None else f"{card.name} ({card.memory_gb:.0f} GB)"


def _cpus(asked: Constraints) -> Iterator[str]:
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    if asked.cpu is not None and there < asked.cpu:
        yield f"{asked.cpu:g} CPUs asked for, and it has {there}: lower resources.cpu"


def memory_lack(asked: Constraints) -> Iterator[str]:
    """What is lacking of RAM: by the limit of the cgroup, else of the machine."""
    if asked.memory_gb is None:
        return
    limit = memory()["limit"]
    if limit is None:
        yield f"{asked.memory_gb:g} GB of memory asked for, and it does not say what it has: leave resources.memory out"
    elif limit < asked.memory_gb * GB:
        yield f"{asked.memory_gb:g} GB of memory asked for, and it may use {limit / GB:.1f}: lower resources.memory"


def _system() -> Iterator[str]:
    if not Path("/proc/self/environ").exists():
        yield "it has no /proc, by which a box's processes are found: Linux is what it has to run"
    if shutil.which("sh") is None:
        yield f"it has no sh on its PATH ({os.environ.get('PATH', '')}), which runs the job: fix PATH of its sshd"


def _room(root: Path, asked: Constraints) -> Iterator[str]:
    """What is lacking on the disks below `root`: boxes and volumes lie there, mostly on one file system."""
    seen: set[int] = set()
    for folder in (root / "boxes", root / "volumes"):
        there = next(one for one in (folder, *folder.parents) if one.is_dir())
        if there.stat().st_dev in seen:
            continue
        seen.add(there.stat().st_dev)
        if not os.access(there, os.W_OK | os.X_OK):
            yield f"{there} can't be written to: name another folder, boxes.<name>.host: user@host:port/folder"
        free, most = shutil.disk_usage(there).free, os.statvfs(there)
        wanted = (asked.disk_gb or 0) * GB
        if free < max(wanted, LEAST_BYTES):
            what = f"{asked.disk_gb} GB of disk asked for, and " if wanted else ""
            yield f"{what}{free / GB:.1f} GB are free at {there}: make room there, or name a folder on a larger disk"
        if most.f_files and most.f_favail < LEAST_INODES:
            yield (
                f"no more files can be made at {there}: {most.f_favail:,} inodes are free, though {free / GB:.1f} GB "
                f"are. Remove files there, or name a folder on another disk"
            )


def cards() -> list[Card]:
    """The GPUs that the driver shows; empty without a driver. One that is divided (MIG) is called so, since a program
    gets a part of it. Raises PlatformError when the driver does not answer: then the GPUs are not known."""
    if shutil.which("nvidia-smi") is None:
        return []
    found: list[Card] = []
    for line in _driver("--query-gpu=name,memory.total", "--format=csv,noheader,nounits").splitlines():
        name, _, memory = line.partition(",")
        if name.strip():
            mib = memory.strip()
            found.append(Card(name.strip(), int(mib) * 2**20 / GB if mib.isdigit() else None))
    for index in _divided():
        if index < len(found):
            found[index] = Card(f"{found[index].name} MIG")
    return found


def _divided() -> set[int]:
    """The places of the GPUs below which the driver lists parts (`  MIG 1g.10gb Device 0: …`)."""
    lines = _driver("-L").splitlines()
    whole = [place for place, line in enumerate(lines) if line.startswith("GPU ")]
    return {sum(at < place for at in whole) - 1 for place, line in enumerate(lines) if line.strip().startswith("MIG ")}


def driver_cuda() -> str | None:
    """The newest CUDA version that the driver supports, such as `12.4`; None when it does not say. Raises
    PlatformError."""
    found = re.search(r"CUDA Version\s*:\s*([0-9]+\.[0-9]+)", _driver("-q"))
    return found[1] if found else None


def _driver(*arguments: str) -> str:
    try:
        return says("nvidia-smi", *arguments, seconds=DRIVER_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise PlatformError(
            f"nvidia-smi is there and does not answer: {error}. Run it on the host; nothing was made there"
        ) from error


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def claim(root: Path, name: str, places: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Checks every place that the box needs, and makes our folder in those that are shown below `mnt/`. Returns path on
    the box → (folder, id). Idempotent. Raises RequestRefused with all problems; then no box was made."""
    problems, shown = [], {}
    for tier, asked in sorted(places.items()):
        place = Path(os.path.expanduser(str(asked["path"])))
        found = problems_of(place, asked)
        if not found and tier.startswith("mnt/"):
            try:
                shown[tier] = str(place / FOLDER), identify(place)
            except OSError as error:
                found = [f"{place} can't be written to: {error.strerror or error}"]
        expected = asked.get("expect")
        if not found and expected and tier in shown and shown[tier][1] != expected:
            found = [
                f"{place} is another file system here ({shown[tier][1]}) than the one that this box's sealed cells and "
                f"checkpoints lie on ({expected}): it belongs to one region. Next: a host of that region under "
                f"boxes.{name}.host; or give the box another name, and its cells start again"
            ]
        problems += found
    if problems:
        raise RequestRefused(f"this host won't do for {name}: {'; '.join(problems)}. Nothing was made there")
    remember(root, {found_id: folder for folder, found_id in shown.values()})
    return shown


def problems_of(place: Path, asked: Mapping[str, Any]) -> list[str]:
    """The problems of a place as the tier that the profile describes; empty without any. Writes one file and removes
    it."""
    import secrets

    where = f"the {asked.get('tier') or place.name} tier ({place})"
    elsewhere = "say where it lies (overrides.<platform>.places)"
    if not place.is_dir():
        return [f"{where} is not there: make it ready in the platform's console, or {elsewhere}"]
    if asked.get("mounted") and not os.path.ismount(place):
        return [
            f"{where} is an ordinary folder of this host's own disk, and nothing is mounted there: what is written "
            "to it dies with the host. Mount it in the platform's console (a host that runs may have to be started "
            f"again), or {elsewhere}"
        ]
    found, needed = os.statvfs(place), int(asked.get("files") or 0)
    if found.f_files and found.f_favail < max(1, needed):
        return [
            f"{where} has room for {found.f_favail} more files (inodes), and the sweep leaves {needed} behind at "
            "least. Remove small files there (`find -xdev -type f | wc -l` counts them), or let the job pack its own"
        ]
    least = int(asked.get("bytes") or 0)
    # What a sweep sealed there already is a part of it: then only its size counts, and not what is free.
    room = (found.f_blocks if (place / FOLDER).exists() else found.f_bavail) * found.f_frsize
    if found.f_blocks and room < least:
        return [
            f"{where} has room for {room / 1e9:.3g} GB, and the artifacts of the sweep have {least / 1e9:.3g} GB at "
            "least, by their min. Free some of it, take a larger one, or let the job keep less"
        ]
    if found.f_blocks and not found.f_bavail:
        return [f"{where} is full: free some of it"]
    probe, word = place / f".sweepstack-{secrets.token_hex(8)}", secrets.token_bytes(32)
    try:
        with open(probe, "xb") as handle:
            handle.write(word)
            handle.flush()
            os.fsync(handle.fileno())
        if probe.read_bytes() != word:
            return [f"{where} does not give back what is written to it"]
    except OSError as error:
        return [f"{where} can't be written to: {error.strerror or error}"]
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return []


def identify(place: Path) -> str:
    """The id of a place; makes one if it has none. Two hosts may do this at once: one makes it, both read it."""
    folder = place / FOLDER
    folder.mkdir(exist_ok=True)
    facts = folder / FACTS
    if not facts.exists():
        staged = folder / f"{FACTS}.{random_id()}"
        write_json_atomically(staged, {"schema": 1, "id": f"{PREFIX}{random_id()}"})
        try:
            os.link(staged, facts)  # fails if it is there already
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            if not facts.exists():
                os.rename(staged, facts)
        with contextlib.suppress(FileNotFoundError):
            staged.unlink()
    return str(read_facts(facts)["id"])


def remember(root: Path, places: Mapping[str, str]) -> None:
    """Records on this host which folder each place id stands for: so a place is found when its boxes are gone."""
    known = _known(root)
    if places and not places.items() <= known.items():
        root.mkdir(parents=True, exist_ok=True)
        write_json_atomically(root / KNOWN, {**known, **places})


def where(root: Path, native_id: str) -> Path:
    """The folder of a place. Raises Unreachable when it is not known here, not mounted, or another file system."""
    folder = _known(root).get(native_id)
    if folder is None:
        raise Unreachable(f"the place {native_id} is not known on this host: nothing of ours showed it here")
    try:
        now = str(read_facts(Path(folder) / FACTS)["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{folder} can't be read: is its file system mounted? ({error})") from error
    if now != native_id:
        raise Unreachable(f"{folder} is {now} now, and not {native_id}: another file system is mounted there")
    return Path(folder)


def _known(root: Path) -> dict[str, str]:
    try:
        return {str(name): str(folder) for name, folder in read_facts(root / KNOWN).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise Unreachable(f"{root / KNOWN} can't be read: {error}") from error
