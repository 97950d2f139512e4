"""Buckets on a box, with the real runner, the real rclone and a real S3 server: copied in, mounted, written behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onbox.harness import IDENTITY, Box, wait_for
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.launch.support import Site

READ = 'cp "$SWEEPSTACK_MOUNT_DATA_IMAGES/a b/one.txt" {out}/seen; printf "[]" > {out}/result.json'
SECONDS = 90.0


@pytest.fixture
def make_box(tmp_path: Path, server: S3Server) -> Iterator[Callable[..., Box]]:
    """A box whose secrets are the keys; all mounts of it get the server."""
    assert shutil.which("rclone"), "apt-get install -y rclone fuse3 (scripts/setup --dev does, as root)"
    boxes = []

    def make(*mounts: dict[str, Any], folder: str = "one", **spec: Any) -> Box:
        (tmp_path / folder).mkdir(exist_ok=True)
        served = [{"endpoint": server.url, **mount} for mount in mounts]
        names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
        box = Box(tmp_path / folder, mounts=served, secrets=names, **spec)
        box.secrets({name: server.environment()[name] for name in names})
        boxes.append(box)
        return box

    yield make
    for box in boxes:
        box.clean()
        for target in (box.root / "mnt").iterdir():
            let_go(target)


@pytest.fixture
def prefix(uri: str, server: S3Server) -> str:
    """A prefix with two files; one has a name that a shell would break."""
    for name, body in (("a b/one.txt", b"one"), ("it's.txt", b"two")):
        server.sdk().put_object(Bucket=BUCKET, Key=f"{key_of(uri)}/{name}", Body=body)
    return uri


def key_of(uri: str) -> str:
    return uri.removeprefix(f"s3://{BUCKET}/")


def keys(server: S3Server, uri: str) -> list[str]:
    found = server.sdk().list_objects_v2(Bucket=BUCKET, Prefix=key_of(uri) + "/").get("Contents", [])
    return sorted(item["Key"].removeprefix(key_of(uri) + "/") for item in found)


def test_a_copy_is_whole_before_any_cell_starts(make_box: Callable[..., Box], prefix: str, server: S3Server) -> None:
    box = make_box({"path": "/data/images", "source": prefix, "mode": "COPY"})
    box.add("a", READ)
    box.run("a")
    assert (box.sealed("a") / "seen").read_text() == "one"
    assert (box.root / "mnt/data-images/it's.txt").read_text() == "two"
    server.stop()
    try:  # what is there whole is not asked for again
        box.add("b", READ)
        box.run("b")
    finally:
        server.start()


def test_a_copy_that_fails_starts_nothing(make_box: Callable[..., Box], uri: str) -> None:
    box = make_box({"path": "/data/images", "source": uri, "mode": "COPY"})
    box.add("a", READ)
    box.run(code=7)
    (failed,) = box.events("setup-failed")
    assert (failed["stage"], box.state("a")) == ("mounts", "pending")
    assert f"{uri} holds nothing. Next: correct mounts" in failed["reason"]
    box.secrets({"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "a-wrong-secret"})
    box.run(code=7)
    said = box.events("setup-failed")[-1]["reason"]
    assert "rclone lsf ended with" in said
    assert "a-wrong-secret" not in said + box.log()


def test_without_rclone_it_says_what_to_install(make_box: Callable[..., Box], uri: str, tmp_path: Path) -> None:
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"})
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env"):
        (bare / name).symlink_to(str(shutil.which(name)))
    box.path = str(bare)
    box.add("a")
    box.run(code=7)
    (failed,) = box.events("setup-failed")
    assert "is not on this box's PATH. Next: install it (apt-get install -y rclone)" in failed["reason"]


def test_a_cell_is_sealed_when_it_was_read_back_from_the_bucket(
    make_box: Callable[..., Box], uri: str, server: S3Server
) -> None:
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}, patrol_seconds=0.2)
    box.add("a")
    box.run("a")
    manifest = (box.sealed("a") / "manifest.json").read_bytes()
    there = [key for key in keys(server, uri) if key.startswith(f"{IDENTITY}/sealed/a/1-")]
    assert {key.rpartition("/")[2] for key in there} == {"log.txt", "manifest.json", "result.json"}
    (copied,) = [key for key in there if key.endswith("manifest.json")]
    assert server.sdk().get_object(Bucket=BUCKET, Key=f"{key_of(uri)}/{copied}")["Body"].read() == manifest

    hold = box.hold("b")
    box.add("b", f"while [ -e {hold} ]; do sleep 0.05; done; printf '[]' > {{out}}/result.json")
    runner = box.start()
    box.pid("b")
    server.stop()  # the bucket is away when the cell ends
    hold.unlink()
    try:
        wait_for(lambda: any(line.get("uploads", {}).get("why") for line in box.patrol()), box.log, SECONDS)
        waiting = next(line for line in box.patrol() if line.get("uploads", {}).get("why"))
        assert waiting["uploads"]["cells"] == ["b"]
        assert any("wait for the bucket" in alarm for alarm in waiting["alarms"])
        assert box.state("b") == "running", "it has ended, and is not sealed"
        assert not box.sealed("b").exists()
    finally:
        server.start()
    assert runner.ended(SECONDS) == 0, box.log()
    assert (box.state("b"), box.journal().cells["b"].attempts) == ("sealed", 1), "and nothing was run again"
    assert any(key.startswith(f"{IDENTITY}/sealed/b/1-") for key in keys(server, uri))


def test_a_box_with_an_empty_tier_takes_back_what_was_sealed_and_saved(
    make_box: Callable[..., Box], uri: str, server: S3Server
) -> None:
    mount = {"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}
    first = make_box(mount, upload_seconds=0.1)
    first.add("a")
    hold = first.hold("steps")
    first.add_steps("steps")
    runner = first.start()
    first.in_the_middle("steps")
    wait_for(lambda: first.state("a") == "sealed", first.log, SECONDS)
    wait_for(lambda: any("/lists/" in key for key in keys(server, uri)), first.log, SECONDS)
    runner.kill()
    for pid in first.processes():
        os.kill(pid, signal.SIGKILL)
    hold.unlink()

    second = make_box(mount, folder="two", generation=1)
    second.control = first.control  # it is a part of the command, and so of what a checkpoint fits
    second.add("a")
    cell = second.add_steps("steps")
    second.run("a", cell.name)
    assert second.events("cell-found-sealed", "a"), second.log()
    assert not second.events("cell-started", "a")
    assert "starts at 0" not in second.output("steps")
    assert (second.sealed("a") / "manifest.json").read_bytes() == (first.sealed("a") / "manifest.json").read_bytes()


def test_a_stop_does_not_wait_for_the_bucket(make_box: Callable[..., Box], uri: str, server: S3Server) -> None:
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"})
    hold = box.hold("a")
    box.add("a", f"while [ -e {hold} ]; do sleep 0.05; done; printf '[]' > {{out}}/result.json")
    runner = box.start()
    box.pid("a")
    server.stop()
    try:
        hold.unlink()
        wait_for(lambda: "waits for its bucket" in box.log(), box.log, SECONDS)
        os.kill(runner.pid, signal.SIGTERM)
        assert runner.ended(SECONDS) == 128 + signal.SIGTERM, box.log()
    finally:
        server.start()
    assert not box.events("cell-failed")
    box.run("a")


def test_a_box_whose_lease_is_over_stays_until_its_bucket_has_the_cell(
    make_box: Callable[..., Box], uri: str, server: S3Server
) -> None:
    """A stop would end the upload, and the next runner would run the cell again."""
    how = {"by": "ssh", "native": "power-off", "command": "exit 1"}
    leased = {"lease": {"seconds": 0.3, "how": how, "kills": []}, "off_again_seconds": [600], "patrol_seconds": 0.2}
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}, stall_seconds=0.5, **leased)
    hold = box.hold("a")
    box.add("a", f"while [ -e {hold} ]; do echo; sleep 0.05; done; printf '[]' > {{out}}/result.json")
    runner = box.start()
    box.pid("a")
    server.stop()
    try:
        hold.unlink()
        wait_for(lambda: any(waited(line) > 4 for line in box.patrol()), box.log, SECONDS)  # many rounds of the watcher
        assert any("wait for the bucket" in alarm for alarm in box.patrol()[-1]["alarms"]), "it tells"
        assert runner.process.poll() is None, box.log()
        assert not box.events("box-off"), box.log()
    finally:
        server.start()
    assert runner.ended(SECONDS) == 0, box.log()
    wait_for(lambda: bool(box.events("box-off")), box.log, SECONDS)
    told = [
        entry["event"]
        for entry in box.journal().entries
        if entry["event"] in ("cell-started", "cell-sealed", "box-off")
    ]
    assert told == ["cell-started", "cell-sealed", "box-off"]
    assert any(key.startswith(f"{IDENTITY}/sealed/a/1-") and key.endswith("manifest.json") for key in keys(server, uri))


def waited(line: dict[str, Any]) -> float:
    """Seconds that the bucket has kept a cell waiting, as a patrol line has it."""
    uploads = line.get("uploads") or {}
    return float(uploads["seconds"]) if uploads.get("why") else 0.0


def test_a_mount_is_read_by_cells_and_goes_with_its_process(
    make_box: Callable[..., Box], prefix: str, server: S3Server
) -> None:
    box = make_box({"path": "/data/images", "source": prefix, "mode": "MOUNT"})
    box.add("a", READ)
    box.run("a")
    target = box.root / "mnt/data-images"
    assert (box.sealed("a") / "seen").read_text() == "one"
    assert os.path.ismount(target)
    with pytest.raises(OSError, match="Read-only"):
        (target / "new").write_text("x")
    for pid in box.processes():
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not os.path.ismount(target), box.log)
    assert keys(server, prefix) == ["a b/one.txt", "it's.txt"]


def test_a_box_that_can_t_mount_says_why(make_box: Callable[..., Box], prefix: str, tmp_path: Path) -> None:
    box = make_box({"path": "/data/images", "source": prefix, "mode": "MOUNT"})
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env", "rclone"):
        (bare / name).symlink_to(str(shutil.which(name)))
    box.path = str(bare)
    box.add("a")
    box.run(code=7)
    (failed,) = box.events("setup-failed")
    assert "fusermount is not on this box's PATH (apt-get install -y fuse3). Next: mode: COPY" in failed["reason"]
    assert json.dumps(failed["reason"]).count(prefix) == 1


def lying(box: Box, folder: Path, script: str) -> Path:
    """An rclone before the real one on the box's path, which may say yes to what it did not do."""
    folder.mkdir()
    program = folder / "rclone"
    program.write_text(f'#!/bin/sh\nreal={shutil.which("rclone")}\n{script}\nexec "$real" "$@"\n')
    program.chmod(0o755)
    box.path = f"{folder}:{os.environ['PATH']}"
    return program


def test_a_copy_with_a_wrong_byte_starts_nothing(make_box: Callable[..., Box], prefix: str, tmp_path: Path) -> None:
    """The size is right, and rclone said that all is well."""
    box = make_box({"path": "/data/images", "source": prefix, "mode": "COPY"})
    lying(box, tmp_path / "lies", '[ "$1" = copy ] && { "$real" "$@"; printf eno > "$3/a b/one.txt"; exit 0; }')
    box.add("a", READ)
    box.run(code=7)
    (failed,) = box.events("setup-failed")
    assert "rclone check ended with 1" in failed["reason"]
    assert not (box.root / "mnt/data-images").exists(), "under its name there is a whole copy, or none"


def test_an_upload_that_only_claims_to_be_there_is_made_again(
    make_box: Callable[..., Box], uri: str, server: S3Server, tmp_path: Path
) -> None:
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"})
    program = lying(box, tmp_path / "lies", '[ "$1" = copy ] && exit 0')
    box.add("a")
    runner = box.start()
    wait_for(lambda: "a waits for its bucket" in box.log(), box.log, SECONDS)
    assert box.state("a") == "running"
    assert not [key for key in keys(server, uri) if key.endswith("manifest.json")], "it stands for what is not there"
    honest = tmp_path / "honest"
    honest.write_text(f'#!/bin/sh\nexec {shutil.which("rclone")} "$@"\n')
    honest.chmod(0o755)
    os.replace(honest, program)
    assert runner.ended(SECONDS) == 0, box.log()
    assert box.state("a") == "sealed"


def let_go(target: Path) -> None:
    """Whatever became of the test, nothing stays mounted."""
    if os.path.ismount(target):
        subprocess.run(["fusermount3", "-uz", str(target)], check=True)


@pytest.mark.parametrize("dead", [False, True], ids=["mounted", "its process was killed"])
def test_the_end_of_a_box_takes_the_mount_and_nothing_of_the_bucket(
    tmp_path: Path, prefix: str, server: S3Server, dead: bool, request: pytest.FixtureRequest
) -> None:
    site = Site(tmp_path)
    values = {name: server.environment()[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    mount = {"path": "/data/images", "source": prefix, "mode": "MOUNT", "endpoint": server.url}
    request.addfinalizer(lambda: let_go(site.root / "mnt/data-images"))
    site.launch("a", mounts=[mount], job={"secrets": tuple(values)}, secrets=values, seconds=SECONDS)
    site.until_state("sealed", "a")
    site.drained()
    target = site.root / "mnt/data-images"
    assert os.path.ismount(target)
    if dead:
        for process in site.channel.processes():
            os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not site.channel.processes(), str)
    site.platform.destroy(site.native_id, site.record.account)
    assert not os.path.lexists(site.root)
    assert not os.path.ismount(target)
    assert keys(server, prefix) == ["a b/one.txt", "it's.txt"]


CUT_LATER = """
import json, os, pathlib, signal, sys, time
saved, out, control = pathlib.Path(sys.argv[1]) / "last.json", pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
step = json.loads(saved.read_text()) if saved.exists() else 0
if control.exists():
    for number in (1, 2):
        saved.write_text(str(number))
        while not (control / str(number)).exists():
            time.sleep(0.02)
    saved.write_text('{"ste')
    os.kill(os.getpid(), signal.SIGKILL)
(out / "result.json").write_text(json.dumps([step]))
"""
"""Saves twice, and is killed in the middle of a third save."""


# What stays in make test: test_the_set_before_and_none (tests/onbox/test_checkpoint_sets.py), and
# test_the_line_names_the_run_whose_set_before_the_newest_is_meant (tests/onbox/test_again.py). 8 s of CPU.
@pytest.mark.proof
def test_a_retry_begins_with_the_set_before_the_newest_on_another_box(
    make_box: Callable[..., Box], uri: str, server: S3Server
) -> None:
    """`sweepctl retry --from set`: the newest set is a checkpoint that was cut; and where there is no set before."""

    def lists() -> list[str]:
        return [key.rpartition("/")[2] for key in keys(server, uri) if "/lists/" in key]

    mount = {"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}
    one = make_box(mount, upload_seconds=2, retries=0)
    run = f"python cut.py {{checkpoints}} {{out}} {one.control}"
    one.add("a", run, more={"code": one.ship({"cut.py": CUT_LATER})})
    runner = one.start()
    for number in (1, 2):
        wait_for(lambda: len(lists()) >= number, one.log, SECONDS)  # noqa: B023
        (one.control / str(number)).touch()
    assert runner.ended(SECONDS) == 1, one.log()
    assert lists()[-1] == "000003", "the cut one was copied before the runner ended, and is the newest"
    shutil.rmtree(one.control)
    two = make_box(mount, folder="two", upload_seconds=2, retries=0)
    code = {"code": two.ship({"cut.py": CUT_LATER})}
    two.add("a", run, more={**code, "retry": 1, "salt": 1, "set_of": 0})
    two.run("a")
    assert json.loads((two.sealed("a") / "result.json").read_text()) == [2]
    two.add("a", run, more={**code, "retry": 2, "salt": 2, "set_of": 1})
    two.run(code=1)
    said = two.events("cell-failed", "a")[-1]["reason"]
    assert "the bucket has no set before the newest. Next: sweepctl retry a --from start" in said
    assert two.state("a") == "failed"
