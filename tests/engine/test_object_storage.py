"""Evidence in object storage, on a real server: the loop, an outage, and a folder that is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack, copy_checkout
from tests.s3.server import S3Server

BUCKET = "lab"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("server"))
    server.start()
    server.sdk().create_bucket(Bucket=BUCKET)
    yield server
    server.stop()


def another_machine(stack: Stack, name: str) -> tuple[Path, dict[str, str]]:
    """A second checkout, and an environment with nothing in its cache."""
    folder = stack.base / name
    copy_checkout(folder)
    (stack.base / f"cache-{name}").mkdir()
    return folder, {"XDG_CACHE_HOME": str(stack.base / f"cache-{name}")}


@pytest.mark.proof  # on the handlers: tests/s3/test_gate.py; on the engine: tests/extensions/pipelines/test_story.py
def test_the_loop(make_stack: Callable[..., Stack], server: S3Server) -> None:
    """The loop; refused as unknown while the server is down; then destroyed from a clone with an empty cache. Mistakes
    about bucket and keys: tests/s3/test_object_store.py."""
    stack = make_stack(name="bucket", cells=("seed0", "seed1"), boxes=("box-0",), init=False)
    stack.env |= server.environment()
    stack.edit_config(lambda sweep: sweep.__setitem__("pull_to", f"s3://{BUCKET}/sweeps/loop"))
    stack.init()
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    assert_refused(stack.destroy())
    assert "moved" in ok(stack.sweepctl("pull")).text
    verified = ok(stack.sweepctl("verify", "--json")).json()
    assert (verified["verified"], verified["total"]) == (2, 2)
    again = stack.verify()
    assert again["receipt"] == verified["receipt"]
    assert again["moved"]["unchanged"] > 0
    ok(stack.sweepctl("approve", again["receipt"]))
    assert "cleared" in ok(stack.up("--diff")).text

    before = stack.native_ids()
    server.stop()
    try:
        outage = stack.destroy()
        assert outage.rc != 0, str(outage)
        assert "does not answer" in outage.text, str(outage)
        assert stack.native_ids() == before
        status = stack.sweepctl("status")
        assert "does not answer" in status.text, str(status)
        verify = stack.sweepctl("verify")
        assert verify.rc == 2, str(verify)
    finally:
        server.start()

    folder, env = another_machine(stack, "clone-b")
    gone = ok(stack.destroy(cwd=folder, env=env))
    assert f"s3://{BUCKET}/sweeps/loop" in gone.text, str(gone)
    assert stack.native_ids() == []
    secrets = [server.secret, server.access]
    for kept in ("backend", "pulumi-home/logs"):
        for path in (stack.base / kept).rglob("*"):
            assert not path.is_file() or not any(word.encode() in path.read_bytes() for word in secrets), path


@pytest.mark.proof
def test_a_folder_moves_there_and_the_state_follows(verified: Stack, server: S3Server) -> None:
    """A made-up place is refused; publish → up (in place) → approve → up → destroyed from another machine."""
    stack = verified
    stack.env |= server.environment()
    uri = f"s3://{BUCKET}/sweeps/moved"
    server.sdk().put_object(Bucket=BUCKET, Key="sweeps/empty/note", Body=b"x")
    text = stack.config_file.read_text()
    stack.edit_config(lambda sweep: sweep.__setitem__("pull_to", f"s3://{BUCKET}/sweeps/empty"))
    refused = stack.up()
    assert refused.rc != 0
    assert "sweepctl pull --to" in refused.text, str(refused)
    stack.config_file.write_text(text)

    published = ok(stack.sweepctl("pull", "--to", uri))
    assert f"pull_to: {uri}" in stack.config_file.read_text(), str(published)
    before = stack.native_ids()
    unfollowed = stack.destroy()
    assert_refused(unfollowed)
    assert uri in unfollowed.text, str(unfollowed)
    preview = ok(stack.run("pulumi", "preview", "--stack", stack.name, "--json")).json()["changeSummary"]
    assert not {"create", "delete", "replace"} & {key for key, count in preview.items() if count}, preview
    ok(stack.up())
    again = ok(stack.run("pulumi", "preview", "--stack", stack.name, "--json")).json()["changeSummary"]
    assert not {key for key, count in again.items() if count} - {"same", "refresh"}, again
    assert stack.native_ids() == before
    status = stack.sweepctl("status", "--json").json()
    assert {cell["state"] for cell in status["cells"]} == {"verified"}
    stack.approve()
    ok(stack.up())
    folder, env = another_machine(stack, "clone-c")
    ok(stack.destroy(cwd=folder, env=env))
    assert stack.native_ids() == []
