"""Checkpoints behind a bucket, with the real runner, rclone and S3 server: which are kept, and found again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import test_golden
from tests.onbox.harness import IDENTITY, Box, wait_for
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.s3.test_box_mounts import SECONDS, key_of, keys, make_box

__all__ = ["make_box"]
JOB = """
import os, signal, sys, time
from pathlib import Path
checkpoints, out, control = map(Path, sys.argv[1:4])
last, stop = checkpoints / "last.ckpt", []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
step = int(last.read_text()) if last.exists() else 0
print("starts at", step, sorted(p.name for p in checkpoints.glob("step-*")), flush=True)
while not (control / "end").exists():
    step += 1
    time.sleep(0.02)
    if stop or step % 10 == 0:
        (checkpoints / f"step-{step}").write_text("x" * 1000)
        for old in sorted(checkpoints.glob("step-*"), key=lambda p: int(p.name[5:]))[:-2]:
            old.unlink()
        (checkpoints / "last.tmp").write_text(str(step))
        os.replace(checkpoints / "last.tmp", last)
    if stop:
        print("saved at", step, flush=True)
        sys.exit(143)
(out / "result.json").write_text("[]")
"""


def add(box: Box, name: str = "a") -> None:
    box.add(name, f"exec python3 job.py {{checkpoints}} {{out}} {box.control}", more={"code": code_of(box)})


def code_of(box: Box) -> str:
    try:
        return box.ship({"job.py": JOB})
    except FileExistsError:
        return next(f"sha256:{one.parent.name}" for one in box.home.glob("code/*/job.py"))


def lists(server: S3Server, uri: str, cell: str = "a") -> list[str]:
    return [key for key in keys(server, uri) if key.startswith(f"{IDENTITY}/checkpoints/{cell}/") and "/lists/" in key]


def said(box: Box, cell: str = "a") -> str:
    return "\n".join(path.read_text() for path in sorted((box.home / "cells" / cell).glob("*/log.txt")))


def test_a_stop_and_a_start_go_on_at_the_last_step(make_box: Callable[..., Box], uri: str, server: S3Server) -> None:
    """Also with the bucket away before the stop; and where the box is lost after it, another one goes on there."""
    mount = {"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}
    box = make_box(mount, upload_seconds=0.2, patrol_seconds=0.2)
    add(box)
    runner = box.start()
    wait_for(lambda: bool(lists(server, uri)), box.log, SECONDS)
    wait_for(lambda: any((line.get("uploads") or {}).get("checkpoints") for line in box.patrol()), box.log, SECONDS)
    facts = next(
        line["uploads"]["checkpoints"] for line in box.patrol() if (line.get("uploads") or {}).get("checkpoints")
    )
    assert set(facts["a"]) == {"age", "bytes", "sets", "behind"}
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended(SECONDS) == 128 + signal.SIGTERM, box.log()
    (last,) = box.volume.rglob("last.ckpt")
    step = last.read_text()
    assert f"saved at {step}" in said(box)
    assert "not_copied" not in box.events("runner-stopped")[-1]

    other = make_box(mount, folder="two", generation=1)  # by the last copy
    other.control = box.control  # a part of the command
    add(other)
    runner = other.start()
    wait_for(lambda: f"starts at {step} " in said(other), other.log, SECONDS)
    rotated = said(other).splitlines()[0]
    assert rotated.count("step-") == 2, "what the job took away does not come back"
    os.kill(runner.pid, signal.SIGKILL)
    for pid in other.processes():
        os.kill(pid, signal.SIGKILL)

    server.stop()  # the bucket is away when the first one is started and stopped
    try:
        runner = box.start()
        assert runner.ended(SECONDS) == 7
    finally:
        server.start()
    (box.control / "end").touch()
    box.run("a")
    assert f"starts at {step} " in said(box), "what lies there is never replaced"


def test_what_was_not_copied_at_the_end_is_said(make_box: Callable[..., Box], uri: str, server: S3Server) -> None:
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}, upload_seconds=0.2)
    add(box)
    runner = box.start()
    wait_for(lambda: bool(lists(server, uri)), box.log, SECONDS)
    server.stop()
    try:
        os.kill(runner.pid, signal.SIGTERM)
        assert runner.ended(SECONDS) == 128 + signal.SIGTERM, box.log()
    finally:
        server.start()
    assert "rclone lsf ended with" in box.events("runner-stopped")[-1]["not_copied"]["a"]
    assert "a: its newest checkpoints are not in the bucket: " in box.log()


# as test_a_late_copy_of_the_box_before_is_refused in tests/onbox/test_checkpoint_sets.py, which stays in make test
@pytest.mark.proof
def test_two_boxes_copy_only_their_own_cells(make_box: Callable[..., Box], uri: str, server: S3Server) -> None:
    mount = {"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}
    one, two = make_box(mount, upload_seconds=1), make_box(mount, folder="two", upload_seconds=1)
    two.control = one.control
    add(one)
    first = one.start()
    wait_for(lambda: bool(lists(server, uri)), one.log, SECONDS)
    add(two, "b")
    second = two.start()
    wait_for(lambda: bool(lists(server, uri, "b")), two.log, SECONDS)
    assert not list(two.volume.rglob("checkpoints/a")), "it is given b alone"
    assert {key.split("/")[4].partition("-")[2] for key in lists(server, uri)} == {one.native_id}
    assert {key.split("/")[4].partition("-")[2] for key in lists(server, uri, "b")} == {two.native_id}

    os.kill(first.pid, signal.SIGSTOP)  # it hangs, and is taken for lost: a goes on at the other one
    for pid in one.processes(cells=True):
        os.kill(pid, signal.SIGSTOP)
    two.drop("b")
    add(two)
    wait_for(lambda: any(two.native_id in key for key in lists(server, uri)), two.log, SECONDS)
    assert "starts at 0 " not in said(two)
    for pid in (*one.processes(cells=True), first.pid):
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: f"{two.native_id} has taken this cell over" in one.log(), one.log, SECONDS)
    os.kill(second.pid, signal.SIGTERM)
    second.ended(SECONDS)
    (last,) = two.volume.rglob("a/*/last.ckpt")
    third = make_box(mount, folder="three")
    third.control = one.control
    add(third)
    third.start()
    wait_for(lambda: bool(said(third)) if (third.home / "cells").exists() else False, third.log, SECONDS)
    assert f"starts at {last.read_text()} " in said(third)


# as test_only_what_changed_is_sent in tests/onbox/test_checkpoint_sets.py, which stays in make test
@pytest.mark.proof
def test_unchanged_files_are_sent_once(make_box: Callable[..., Box], uri: str, server: S3Server) -> None:
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"}, upload_seconds=0.2)
    frozen = "head -c 3000000 /dev/urandom > {checkpoints}/frozen; "
    box.add("a", frozen + f"exec python3 job.py {{checkpoints}} {{out}} {box.control}", more={"code": code_of(box)})
    runner = box.start()
    wait_for(lambda: len({key[-6:] for key in lists(server, uri)} - {"000001"}) == 2, box.log, SECONDS)
    blobs = [key for key in keys(server, uri) if key.endswith("/frozen")]
    assert len(blobs) == 1
    at = server.sdk().head_object(Bucket=BUCKET, Key=f"{key_of(uri)}/{blobs[0]}")["LastModified"]
    again = lists(server, uri)
    wait_for(lambda: lists(server, uri) != again, box.log, SECONDS)
    assert server.sdk().head_object(Bucket=BUCKET, Key=f"{key_of(uri)}/{blobs[0]}")["LastModified"] == at
    os.kill(runner.pid, signal.SIGTERM)
    runner.ended(SECONDS)


def test_the_golden_bucket_is_gone_on_with(make_box: Callable[..., Box], uri: str, server: S3Server) -> None:
    golden = Path(test_golden.__file__).parent / "bucket-6f8d950f"
    for path in golden.rglob("*"):
        if path.is_file():
            key = f"{key_of(uri)}/{path.relative_to(golden)}"
            server.sdk().put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    box = make_box({"path": "/ckpt", "source": uri, "mode": "MOUNT_CACHED"})
    code = box.ship({"job.py": golden.with_name("bucket_job.py").read_text()})
    box.add("done", "printf '[]' > {out}/result.json")
    box.add("a", "exec python3 job.py {checkpoints} {out}", more={"code": code})
    box.run("done", "a")
    assert box.events("cell-found-sealed", "done")
    assert said(box).startswith("starts at 7\n"), said(box)
    assert sum("/checkpoints/a/" in key for key in keys(server, uri)) >= 8, "it stays until there are whole sets"
