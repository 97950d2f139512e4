"""Checks and claims folders of a host (a shared file system, a net disk) that serve as tiers.

The provider or a person made the place. Ours in it is one folder, `<place>/sweepstack`, with a random id in
`place.json`, made once. Two hosts that read the same id see the same file system; so two regions are told apart. A
runner that finds no id sees an empty mount point instead of the tier. Runs on the host: Python 3.8, standard library.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import RequestRefused, Unreachable
from sweepstack.onbox.host.box_folders import random_id, read_facts

FOLDER, FACTS, KNOWN = "sweepstack", "place.json", "places.json"
PREFIX = "place-"
"""The ids of places begin with this. A box's facts name the places that outlive it by their ids."""


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
