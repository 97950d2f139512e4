"""A bundle that a person runs: real runner, real cells of a shell script, no engine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.journal import parse_journal
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.by_hand.platform import HandPlatform, connect_to, prove_same
from sweepstack.launch.launch import Launched, read_journal
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.errors import ConfigError, PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from tests.unit.launch.support import IDENTITY, SECONDS, TRAIN, Site

FACTS = {"step": "Run {bundle}"}


class HandSite(Site):
    """A box that comes back to `returned`, and a machine far away: `away`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name, self.said = folder, "box-0", []
        self.returned, self.away = folder / "returned", folder / "away"
        self.platform = self.hand = connect_to(self.returns)
        uri = f"file://{socket.gethostname()}{folder / 'evidence'}"
        self.store = EvidenceStore.found(uri, IDENTITY, "project", "sweep-t")
        self.control, self.job = folder / "control", folder / "job"
        for made in (self.control, self.job, self.away):
            made.mkdir()
        (self.job / "train.sh").write_text(TRAIN)
        tag = box_layout.box_tag(IDENTITY, self.name, 1)
        self.record = self.hand.create(BoxRequest(tag, self.name, 0, {}, {}), wait=Wait(60))
        self.native_id = self.record.native_id
        self.root = self.hand._box(self.native_id)
        self.store.write_birth(self.birth())

    @property
    def returns(self) -> str:
        """Where it comes back to, as a stack file has it."""
        return str(self.returned)

    @property
    def channel(self) -> LocalChannel:  # type: ignore[override]
        return self.hand.channel(self.native_id, self.record.account)

    def up(self, *cells: str, facts: dict[str, Any] | None = None, **changes: Any) -> Launched:
        return self.launch(*cells, channel=self.channel, by_hand=facts or FACTS, **changes)

    @property
    def bundle(self) -> Path:
        return self.returned / f"box-0.{self.native_id}.zip"

    @property
    def carried(self) -> Path:
        return self.away / "out" / self.native_id

    def run(self, *more: str, bundle: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """What a person types far away, with a HOME of its own and no variable of ours."""
        command = [sys.executable, str(bundle or self.bundle), *more]
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.away), **env}
        return subprocess.run(
            command, cwd=self.away, env=clean, timeout=SECONDS, capture_output=True, text=True, check=False
        )

    def session(self, *more: str, **env: str) -> str:
        done = self.run("--out", "out", "--work", "work", *more, **env)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def bring_back(self, name: str = "") -> Path:
        target = self.returned / (name or self.native_id)
        shutil.copytree(self.carried, target, dirs_exist_ok=True)
        return target


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HandSite]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = HandSite(tmp_path)
    yield found
    processes.end_box(found.native_id, grace=0)


@pytest.fixture
def back(site: HandSite) -> HandSite:
    """One cell was run far away, and came back."""
    site.up("a")
    site.session()
    site.bring_back()
    assert site.states() == {"a": "sealed"}
    return site


def test_the_words_name_the_bundle_and_nothing_is_started(site: HandSite) -> None:
    said = site.up("a", "b")
    assert said.by_hand == f"to run it by hand: {site.bundle}. Run {site.bundle.name}"
    assert not said.started_runner
    assert site.channel.processes() == []
    assert "nothing has come back yet" in site.hand.channel(site.native_id, site.record.account).note
    with pytest.raises(PlatformError, match="only a person can reach"):
        site.channel.run(["true"], timeout=1)


def test_the_same_content_is_the_same_bundle_and_holds_no_secret(site: HandSite) -> None:
    site.up("a", job={"secrets": ("TOKEN",)}, secrets={"TOKEN": "s3cr3t-value"})
    first = site.bundle.read_bytes(), site.bundle.stat().st_mtime_ns
    site.up("a", job={"secrets": ("TOKEN",)}, secrets={"TOKEN": "s3cr3t-value"})
    assert (site.bundle.read_bytes(), site.bundle.stat().st_mtime_ns) == first
    assert b"s3cr3t-value" not in unpacked(site)
    done = site.run("--out", "out", "--work", "work")
    assert done.returncode == 2
    assert "the job has secrets that are not set here: TOKEN" in done.stderr
    site.session(TOKEN="another-value")
    assert (site.away / "work" / site.native_id / box_layout.SECRETS).stat().st_mode & 0o777 == 0o600
    assert not list(site.carried.rglob("secrets.json"))


def unpacked(site: HandSite) -> bytes:
    with zipfile.ZipFile(site.bundle) as archive:
        (site.away / "payload").write_bytes(archive.read("payload.bin"))
    with tarfile.open(site.away / "payload") as payload:
        return b"".join(source.read() for member in payload if (source := payload.extractfile(member)))


def test_more_cells_are_a_new_bundle_and_what_is_sealed_stays(back: HandSite) -> None:
    back.up("a", "b")
    said = back.session()
    assert "2 sealed" in said
    back.bring_back()
    assert back.states() == {"a": "sealed", "b": "sealed"}
    assert back.started() == ["a a", "b b"]
    assert back.up("a", "b").by_hand == "", "nothing is left to run"


def test_a_platform_that_unpacks_zips_and_hands_out_one_file(site: HandSite) -> None:
    facts = {**FACTS, "cell": "!python3 {bundle} {id}", "archive": str(site.away / "working"), "hours": 8.5}
    site.up("a", facts=facts)
    notebook = json.loads(site.bundle.with_suffix(".ipynb").read_text())
    assert notebook["cells"][0]["source"] == f"!python3 {site.bundle.name} {site.native_id}"
    folder = site.away / "input" / "set"
    with zipfile.ZipFile(site.bundle) as archive:
        archive.extractall(folder)
    done = site.run("--out", "out", "--work", "work", bundle=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    (packed,) = (site.away / "working").iterdir()
    assert packed.name == f"box-0.{site.native_id}.tar"
    shutil.copy(packed, site.returned)
    assert f"tar -xf {site.returned / packed.name} -C {site.returned}" in site.hand.channel(*who(site)).note
    with tarfile.open(site.returned / packed.name) as archive:
        archive.extractall(site.returned, filter="data")
    assert site.states() == {"a": "sealed"}
    # The next session begins on a machine of its own, with the last one's output as an input.
    site.up("a", "b", facts={**facts, "inputs": [str(site.away / "working")]})
    for gone in ("out", "work"):
        shutil.rmtree(site.away / gone)
    assert "2 sealed" in site.session()
    assert site.started() == ["a a", "b b"]


def who(site: HandSite) -> tuple[str, str]:
    return site.native_id, site.record.account


def test_a_session_ends_itself_before_its_clock_and_the_next_one_goes_on(site: HandSite) -> None:
    site.up("a", "b", slots=1, grace_seconds=1.0)
    site.hold("b")
    said = site.session("--hours", "0.0005")
    assert "the session's time is over" in said
    site.bring_back()
    assert site.states().get("b") != "sealed"
    site.release()
    assert "2 sealed" in site.session()


def test_a_damaged_bundle_starts_nothing(site: HandSite) -> None:
    site.up("a")
    folder = site.away / "set"
    with zipfile.ZipFile(site.bundle) as archive:
        archive.extractall(folder)
    (folder / "payload.bin").write_bytes((folder / "payload.bin").read_bytes()[:-9])
    done = site.run(bundle=folder)
    assert (done.returncode, "is damaged" in done.stderr) == (2, True)


def test_an_older_copy_takes_nothing_back(back: HandSite) -> None:
    back.up("a", "b")
    back.session()
    kept = back.folder / "first"
    (back.returned / back.native_id).rename(kept)
    back.bring_back()
    assert back.states() == {"a": "sealed", "b": "sealed"}
    shutil.rmtree(back.returned / back.native_id)
    kept.rename(back.returned / back.native_id)
    assert back.states() == {"a": "sealed", "b": "sealed"}
    assert "is an older copy" in back.hand.channel(*who(back)).note


def test_what_can_not_count_is_unknown_with_its_reason(back: HandSite) -> None:
    """A journal that was edited, half a copy, none, no folder; then two copies of sessions that ran at once, and last
    one that is not the one that had come back before."""
    copy, elsewhere = back.returned / back.native_id, back.folder / "elsewhere"
    journal, mark = copy / box_layout.JOURNAL, copy / "sweepstack-box.json"

    def is_unknown(said: str) -> None:
        with pytest.raises(Unreachable, match=said):
            back.channel  # noqa: B018 - opening it is the look
        record = back.hand.get(*who(back))
        assert (record.phase, said.rstrip("?")[:12] in record.note) == (Phase.RUNNING, True)
        known = parse_journal((back.root / box_layout.JOURNAL).read_bytes())
        assert known.cells["a"].state == "sealed", "as it was known"

    whole, marked = journal.read_bytes(), mark.read_bytes()
    journal.write_bytes(whole.replace(b'"a"', b'"z"', 1))
    is_unknown("its journal was changed after it was written")
    journal.write_bytes(whole)
    mark.unlink()
    is_unknown("it is half a copy")
    mark.write_bytes(marked)
    for place, said in ((copy, "Put it back: it is not lost"), (back.returned, "Is it mounted, or synchronized?")):
        place.rename(elsewhere)
        is_unknown(said)
        elsewhere.rename(place)
    assert back.states() == {"a": "sealed"}
    shutil.rmtree(back.away / "work")
    shutil.rmtree(back.away / "out")
    back.session()
    back.bring_back("other")
    is_unknown("two sessions ran at the same time")
    shutil.rmtree(copy)
    is_unknown("two sessions ran at the same time")


def test_a_folder_of_another_box_is_told_and_not_read(site: HandSite, tmp_path: Path) -> None:
    site.up("a")
    site.session()
    target = site.bring_back("theirs")
    mark = json.loads((target / "sweepstack-box.json").read_text())
    (target / "sweepstack-box.json").write_text(json.dumps({**mark, "native_id": "manual-zzzzzzzzzz"}))
    channel = site.hand.channel(*who(site))
    assert channel.note == (
        f"{site.returned} holds manual-zzzzzzzzzz, and nothing of {site.native_id}: it belongs to another box or sweep"
    )
    assert read_journal(channel).cells == {}


def test_a_folder_full_of_other_things_is_refused_and_not_searched_for_ever(
    site: HandSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweepstack.extensions.by_hand.onbox.returned.ENTRIES", 2)
    for name in ("a", "b", ".c"):
        (site.returned / name).mkdir()
    with pytest.raises(Unreachable, match="name a folder for results alone"):
        site.channel  # noqa: B018 - opening it is the look
    (site.returned / "b").rmdir()
    assert site.channel.processes() == []


def test_its_folder_may_move_and_another_box_may_not_take_it(back: HandSite, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    back.returned.rename(moved)
    prove_same(str(moved), str(back.returned), *who(back), None)
    assert connect_to(str(moved)).channel(*who(back)).returned.folder == moved / back.native_id
    with pytest.raises(PlatformError):
        prove_same(str(moved), str(back.returned), "manual-zzzzzzzzzz", back.record.account, None)


def test_an_address_is_a_folder(tmp_path: Path) -> None:
    for wrong in ("", "drive", "../x"):
        with pytest.raises(ConfigError):
            connect_to(wrong)
    with pytest.raises(ConfigError, match=r"boxes\.<name>\.returns"):
        HandPlatform("").create(BoxRequest("tag", "box-0", 0, {}, {}), wait=Wait(1))


def test_an_older_bundle_starts_nothing_where_a_newer_one_ran(back: HandSite) -> None:
    older = shutil.copyfile(back.bundle, back.away / "older.zip")
    back.up("a", "b")
    back.session()
    refused = back.run("--out", "out", "--work", "work", bundle=older)
    assert refused.returncode == 2
    assert "is older than the bundle that ran in" in refused.stderr
