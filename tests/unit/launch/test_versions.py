"""Versions, retries, pins, secrets and settings, as a box is told them: queue lines, spec.json, files."""

from __future__ import annotations

import contextlib
import io
import json
import re
import stat
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core.records import Again
from sweepstack.core.workdir import collect
from sweepstack.launch import ship
from sweepstack.launch.entries import on_another_box
from sweepstack.launch.launch import FirstCellFailed, SetupFailed, launch
from sweepstack.launch.ship import settings as spec_json
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import ConfigError, EvidenceDamaged, EvidenceMissing, SweepstackError, Unreachable
from tests.unit.launch.support import Broken, Site
from tests.unit.launch.test_launch import given_elsewhere, verified

SECRET = "hunter2-hunter2"


def lines(site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.queue().splitlines()]


def settings(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(site.channel.read(box_layout.SPEC))
    return found


def kept(site: Site, code: str) -> bytes:
    data = site.store.read_code(code)
    assert data is not None
    return data


def change_code(site: Site, word: str = "changed") -> str:
    """Another version of the job; the digest of the one before."""
    before = collect(site.job).digest
    (site.job / "note.txt").write_text(word)
    return before


# Lines


def test_a_job_without_anything_new_makes_the_lines_that_it_always_made(site: Site) -> None:
    """A queue from before must not be given again."""
    site.launch("a")
    (line,) = lines(site)
    assert sorted(line) == ["artifacts", "cell", "code", "config_digest", "env", "op", "params", "run"]
    known = "artifacts box durable env generation identity metrics native_id python retries schema slots"
    assert sorted(settings(site)) == known.split()
    assert site.channel.size(box_layout.SECRETS) is None


def test_setup_is_part_of_a_line(site: Site) -> None:
    site.launch("a", setup="true")
    assert [line["setup"] for line in lines(site)] == ["true"]
    site.drained()
    site.launch("a", setup="true # again")
    assert len(lines(site)) == 1, "a sealed cell keeps its version"


def test_settings_reach_the_box(site: Site) -> None:
    room = {"bytes": 1000, "inodes": 5}
    metrics = {"file": "m.jsonl", "x": "step", "y": ["loss"], "stop_on_nan": True}
    site.launch(
        "a",
        min_free_bytes=1000,
        min_free_inodes=5,
        stall_seconds=90.0,
        metrics=metrics,
        job={"secrets": ("A",)},
        secrets={"A": "bcdefg"},
    )
    said = settings(site)
    assert (said["min_free"], said["stall_seconds"], said["secrets"]) == (room, 90.0, ["A"])
    assert said["metrics"]["stop_on_nan"] is True
    assert spec_json(site.spec("a", gpus=2), "python")["gpus"] == 2
    assert spec_json(site.spec("a", grace_seconds=0.0), "python")["grace_seconds"] == 0.0


# Retries, while a runner lives that is to take them up


def at_work(site: Site, *cells: str) -> None:
    """These cells are sealed, and another one keeps the runner alive."""
    site.hold("z")
    site.launch(*cells, "z")
    site.until_state("sealed", *cells)


def test_a_sealed_cell_is_given_again_once_for_each_retry(site: Site) -> None:
    at_work(site, "a", "b")
    again = site.launch("a", "b", "z", retries={"a": Again(retry=1, salt=1)})
    assert again.appended == ("a",)
    assert (lines(site)[-1]["cell"], lines(site)[-1]["retry"], lines(site)[-1]["salt"]) == ("a", 1, 1)
    assert site.launch("a", "b", "z", retries={"a": Again(retry=1, salt=1)}).appended == ()


def test_a_verified_cell_that_is_retried_counts_no_more(site: Site) -> None:
    at_work(site, "a")
    verified(site, "a")
    digest = site.store.latest_receipt()
    assert digest is not None
    (cell,) = site.store.receipt(digest).cells
    other = {"a": Again(retry=1, salt=1, manifest=digest_of("another"))}
    assert site.launch("a", "z", retries=other).appended == ()
    assert site.launch("a", "z", retries={"a": Again(retry=1, salt=1, manifest=cell.manifest)}).appended == ("a",)


def test_a_cell_that_moved_is_run_again_where_it_ran(site: Site) -> None:
    """The program gives it another box now, which waits while this one holds it."""
    at_work(site, "a", "b")
    again = site.launch("b", "z", elsewhere={"a": ""}, retries={"a": Again(retry=1, salt=1)})
    assert again.appended == ("a",)
    assert lines(site)[-1]["params"] == {"word": "a"}
    assert site.launch("b", "z", elsewhere={"a": ""}).removed == ()


def test_another_box_s_retry_is_none_of_ours(site: Site) -> None:
    given_elsewhere(site, "z")
    assert site.launch("a", elsewhere={"z": ""}, retries={"z": Again(retry=1)}).appended == ("a",)


# Retries, by the real runner


def test_a_sealed_cell_runs_again_from_nothing_and_is_sealed_again(site: Site) -> None:
    site.launch("a", "b")
    site.drained()
    before = site.journal.cells["a"]
    retries = {"a": Again(retry=1, salt=1, manifest=before.manifest)}
    assert site.launch("a", "b", retries=retries).started_runner
    site.drained()
    after = site.journal.cells["a"]
    assert (after.state, after.retry, after.attempts) == ("sealed", 1, before.attempts + 1)
    assert after.manifest != before.manifest
    assert sorted(site.started()) == ["a a", "a a", "b b"]
    head = site.journal.head
    assert not site.launch("a", "b", retries=retries).started_runner
    assert site.journal.head == head


def test_a_retry_waits_for_a_runner_that_does_it(site: Site) -> None:
    """The line is in the queue and no runner was started: the cell's old seal does not count as its end."""
    site.launch("a")
    site.drained()
    retries = {"a": Again(retry=1, salt=1)}
    with pytest.raises(Unreachable):
        site.launch("a", retries=retries, channel=Broken(site.channel, "spawn", Unreachable("the line is cut")))
    done = site.launch("a", retries=retries)
    assert (done.appended, done.started_runner) == ((), True)
    site.drained()
    assert site.journal.cells["a"].retry == 1


def test_a_cell_that_failed_for_good_is_tried_again_as_it_is(site: Site) -> None:
    site.fail("b")
    site.launch("a", "b", slots=1)  # a first: a queue whose first cell fails at once is refused
    site.until_state("failed", "b")
    site.drained()
    attempts = site.journal.cells["b"].attempts
    assert not site.launch("a", "b").started_runner
    site.fail("b", yes=False)
    site.launch("a", "b", retries={"b": Again(retry=1)})
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed"}
    assert site.journal.cells["b"].attempts == attempts + 1


# Setup, by the real runner


def test_a_setup_s_time_is_not_that_of_the_first_step(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setup goes on until it was seen to be at work an hour later."""
    seen: list[str] = []
    over = site.control / "over"

    class Heard(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            if "setup, " in line and "wheels" in line:
                seen.append(line)
                if len(seen) == 2:
                    over.touch()

    later = SimpleNamespace(monotonic=lambda: time.monotonic() + (3000 if seen else 0), sleep=time.sleep)
    monkeypatch.setattr("sweepstack.launch.first_step.time", later)
    monkeypatch.setattr("sweepstack.launch.first_step.PROGRESS_SECONDS", 0.1)
    site.said = Heard()
    setup = f"echo wheels; until test -e {over}; do sleep 0.05; done; echo there"
    done = site.launch("a", setup=setup, seconds=120)
    assert done.started_runner
    assert len(seen) > 1
    assert re.search(r"setup, 3\d\d\d s: wheels", seen[1])
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_smoke_run_that_fails_on_the_box_is_shown_with_its_last_words(site: Site) -> None:
    with pytest.raises(SetupFailed) as failed:
        site.launch("a", smoke={"run": "echo no column {word}; exit 3", "seconds": 120.0})
    for words in ("the smoke run (job.smoke) as a: exit code 3: no column a", "Fix the job, or job.smoke"):
        assert words in str(failed.value)
    site.drained()
    assert site.started() == []
    site.launch("a", smoke={"run": "test {word} = a", "seconds": 120.0})
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_setup_that_fails_is_shown_with_its_last_words(site: Site) -> None:
    with pytest.raises(SetupFailed) as failed:
        site.launch("a", setup="echo the last words of setup; exit 3")
    assert "setup failed" in str(failed.value)
    assert "the last words of setup" in str(failed.value)
    assert "Fix job.setup" in str(failed.value)
    assert site.started() == []
    assert site.record_of_launch() is not None


def test_a_setup_is_not_watched_for_ever_and_goes_on(site: Site, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with pytest.raises(FirstCellFailed, match=r"goes on; it last said: (wheels|pip )"):  # pip: a machine under load
        launch(
            site.spec("a", setup=f"echo wheels; until test -e {seen}; do sleep 0.2; done"),
            site.channel,
            site.store,
            progress=site.said.append,
            setup_seconds=2.5,
        )
    seen.touch()
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_wait_that_is_cut_short_says_so_and_ends_nothing(site: Site) -> None:
    with pytest.raises(FirstCellFailed, match="the box bills, and goes on"):
        launch(
            site.spec("a", setup="sleep 1"),
            site.channel,
            site.store,
            progress=site.said.append,
            cancelled=lambda: not site.idle(),
        )
    site.drained()
    assert site.states() == {"a": "sealed"}


# Code


def test_every_version_is_kept_in_the_evidence(site: Site) -> None:
    first = site.spec("a").code
    site.launch("a")
    change_code(site)
    second = site.spec("a").code
    site.launch("a", "b")
    assert site.store.codes() == sorted([first, second])
    with ship.unpacked(kept(site, second), second) as files:
        assert {name: path.read_text() for name, path, _ in files}["note.txt"] == "changed"


def test_a_pinned_cell_runs_code_that_is_here_no_more(site: Site) -> None:
    site.launch("a")
    site.drained()
    first = change_code(site)
    folder = site.root / box_layout.code_dir(first)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    site.launch("a", "b", "c", pins={"b": first})
    assert {line["cell"]: line["code"] for line in lines(site)} == {
        "a": first,
        "b": first,
        "c": collect(site.job).digest,
    }
    assert (folder / "train.sh").read_bytes() == (site.job / "train.sh").read_bytes()
    assert not (folder / "note.txt").exists()
    assert any(f"of code {box_layout.short(first)} from the evidence" in line for line in site.said)
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed", "c": "sealed"}


SAVES = """\
echo x >> "$SWEEPSTACK_CHECKPOINT_DIR/n"
test -e note.txt || exit 1
printf '{"word": "%s", "steps": %d}' "$1" "$(wc -l < "$SWEEPSTACK_CHECKPOINT_DIR/n")" > "$2/result.json"
"""
"""Fails in its first version, after it has saved something."""


def test_a_cell_with_a_checkpoint_keeps_its_version_on_a_later_box_unless_it_goes_on_across_code(site: Site) -> None:
    """Seen: on a new box with the same volume it took the new code, and began at 0 unasked."""
    later = Site(site.folder, "box-2")
    (site.job / "train.sh").write_text(SAVES)
    with contextlib.suppress(FirstCellFailed):  # on a busy machine its failure comes after its first sign of life
        site.launch("a", job={"retries": 0})
    site.drained()
    site.store.write_journal(site.name, 1, site.channel.read(box_layout.JOURNAL))
    site.store.write_birth(site.birth(ended_at=datetime.now(UTC), ended_how="vanished"))
    first = change_code(site)
    (line,), before = lines(site), site.journal.cells["a"]
    new = {**line, "code": collect(site.job).digest}
    assert on_another_box(new, before, lambda *_: False)["code"] == new["code"], "what it saved is gone"
    with pytest.raises(SweepstackError, match=r"another command, setup or environment wrote .* --from start"):
        later.launch("a", run="sh train.sh 1 {out}")
    with contextlib.suppress(FirstCellFailed):
        later.launch("a", job={"retries": 0})
    later.drained()
    assert later.states() == {"a": "failed"}
    assert [line["code"] for line in lines(later)] == [first]
    later.launch("a", resume="across-code")
    later.drained()
    manifest = json.loads(later.sealed("a", "manifest.json"))
    assert json.loads(later.sealed("a", "result.json"))["steps"] == 3
    assert (manifest["code"], manifest["checkpoints_of"]) == (new["code"], [first])
    assert later.launch("a", resume="across-code").appended == ()
    later.close()


def test_a_pinned_cell_alone_does_not_ask_for_the_work_dir(site: Site) -> None:
    site.launch("a")
    site.drained()
    first = change_code(site)
    spec = site.spec("a", "b")
    change_code(site, "edited while it is previewed")
    assert site.launch("a", "b", code=spec.code, pins={"b": first}).appended == ("b",)


def test_a_version_that_is_not_in_the_evidence_is_not_given(site: Site) -> None:
    with pytest.raises(EvidenceMissing):
        site.launch("a", pins={"a": digest_of("never")})
    assert site.queue() == b""


def test_a_damaged_archive_is_not_shipped(site: Site) -> None:
    site.launch("a")
    site.drained()
    first = change_code(site)
    path = site.store.root / "code" / f"{first.removeprefix('sha256:')}.tar"
    path.write_bytes(path.read_bytes().replace(b"training", b"straying"))
    folder = site.root / box_layout.code_dir(first)
    folder.rename(folder.with_name("moved"))
    with pytest.raises(EvidenceDamaged, match="its content is not what its name says"):
        site.launch("a", "b", pins={"b": first})
    assert not folder.exists()


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        job = tmp_path / name
        (job / "sub").mkdir(parents=True)
        (job / "sub" / "run.sh").write_text("echo\n")
        (
            job / "ünïcode-and-a-name-that-is-longer-than-a-hundred-characters-so-that-it-needs-a-header-of-its-own.txt"
        ).write_text(name[:0])
        (job / "sub" / "run.sh").chmod(0o755)
        made.append(ship.pack(job, collect(job)))
    assert made[0] == made[1]
    with ship.unpacked(made[0], collect(tmp_path / "one").digest) as files:
        assert next((name, mode) for name, _, mode in files) == ("sub/run.sh", 0o755)


@pytest.mark.parametrize("text", ["", "shorter", "longer than it was before"])
def test_a_file_that_changes_while_it_is_packed_is_refused(tmp_path: Path, text: str) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "f").write_text("as it was once")
    shipment = collect(job)
    (job / "f").write_text(text)
    with pytest.raises(ConfigError, match="changed while it was being read"):
        ship.pack(job, shipment)


@pytest.mark.parametrize("name", ["../out", "/etc/out", "link"])
def test_an_archive_that_leads_out_is_refused(name: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo(name)
        if name == "link":
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info, io.BytesIO())
    with (
        pytest.raises(EvidenceDamaged, match="which is no plain file"),
        ship.unpacked(made.getvalue(), digest_of(1)),
    ):
        pass


# Secrets


def test_secrets_are_written_for_their_user_alone_and_before_the_queue(site: Site) -> None:
    site.hold("a")
    site.launch("a", job={"secrets": ("KEY",)}, secrets={"KEY": SECRET})
    path = site.root / box_layout.SECRETS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_bytes()) == {"KEY": SECRET}
    others = [p for p in site.root.rglob("*") if p.is_file() and not p.is_symlink() and p != path]
    assert others
    assert [p for p in others if SECRET.encode() in p.read_bytes()] == []
    assert [p for p in site.store.root.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()] == []
    assert SECRET not in repr(site.spec("a", secrets={"KEY": SECRET}))
    assert not any(SECRET in line for line in site.said)


def test_secrets_that_changed_are_written_again(site: Site) -> None:
    site.hold("a")
    site.launch("a", job={"secrets": ("KEY",)}, secrets={"KEY": SECRET})
    before = (site.root / box_layout.SECRETS).stat().st_mtime_ns
    site.launch("a", job={"secrets": ("KEY",)}, secrets={"KEY": SECRET})
    assert (site.root / box_layout.SECRETS).stat().st_mtime_ns == before
    site.launch("a", job={"secrets": ("KEY",)}, secrets={"KEY": "another"})
    assert json.loads(site.channel.read(box_layout.SECRETS)) == {"KEY": "another"}
    site.launch("a", job={"secrets": ("KEY",)}, secrets=None)
    assert json.loads(site.channel.read(box_layout.SECRETS)) == {"KEY": "another"}, "no one on this side knows them"
    site.launch("a", secrets={})
    assert json.loads(site.channel.read(box_layout.SECRETS)) == {}, "taken out of the config"
