"""Odd file names and a failed cell, from a host over SSH into a bucket, read after the box's end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.rented.host_stack import HostStack
from tests.s3.server import S3Server

ODD = (b"a\tb", b"a\nb", b"a\\b", b"a\377", b"%_a%09b", b"%0A", b"a%0Ab", b"deep\n/er\t/file")
SEALED = ["%0A", "%_%25_a%2509b", "%_a%09b", "%_a%0Ab", "%_a%5Cb", "%_a%FF", "%_deep%0A/%_er%09/file", "a%0Ab"]
WRITES = f"""
for odd in {ODD!r}:
    path = os.path.join(os.fsencode(arguments.out), odd)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(odd)
(arguments.out / "metrics.jsonl").write_text('{{"step": 1, "loss": 0.5}}\\n')
while (control"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[HostStack]:
    server = S3Server(tmp_path / "server")
    server.start()
    stack = HostStack(tmp_path / "sweep")
    try:
        server.sdk().create_bucket(Bucket="lab")
        stack.env |= server.environment()
        yield stack
    finally:
        stack.end()
        server.stop()


@pytest.mark.proof
def test_odd_names_and_what_failed_outlive_box_and_stack_file(stack: HostStack) -> None:
    train = stack.job / "train.py"
    train.write_text(train.read_text().replace("\nwhile (control", WRITES, 1))
    stack.write_config()
    evidence = "s3://lab/sweeps/odd"
    metrics = {"file": "metrics.jsonl", "x": "step", "y": ["loss"]}
    stack.edit_config(lambda sweep: sweep.update(pull_to=evidence, metrics=metrics))
    stack.tell("fail", "seed1")
    stack.init()
    ok(stack.up())
    stack.wait_done(but=["seed1"])
    stack.wait_idle()
    pulled = ok(stack.sweepctl("pull", "--json")).json()
    assert {(one["cell"], one["attempt"]): one["left"] for one in pulled["unsealed"]} == {
        ("seed1", 1): [],
        ("seed1", 2): [],
    }
    stack.approve("cell/seed1", "--reason", "told to fail")
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []

    ok(stack.run("pulumi", "stack", "rm", stack.name, "--yes"))
    assert not stack.config_file.exists()
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):  # another computer
        stack.env[name] = str(stack.base / f"other-{name}")

    def read(*words: str) -> str:
        return ok(stack.run("sweepctl", *words, "--evidence", evidence)).out

    assert "1/2" in read("results")
    assert "told to fail" in read("logs", "seed1")
    assert "done seed0" in read("logs", "seed0")
    assert "seed1" in read("logs", "--of", "runner", "box-0")
    assert "seed1" in read("curves")
    shown = read("show", "seed0")
    assert all(name in shown for name in SEALED)
    assert "all that was verified is as it was" in read("verify")
