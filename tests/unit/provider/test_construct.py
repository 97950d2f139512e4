"""The process that declares a component: what it says reaches the engine, and it ends with the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweepstack.core.printable import MESSAGE_SHOWN
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.provider.construct import construct
from sweepstack.provider.grpc_stubs import provider_pb2
from sweepstack.provider.session import Session

REQUEST = provider_pb2.ConstructRequest(type="sweepstack:index:Sweep", name="a", stack="t")


def session(folder: Path) -> Session:
    return Session(folder, lambda *_: None, engine="127.0.0.1:1")


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What is started in place of Python."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))


def test_its_answer_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = provider_pb2.ConstructResponse(urn="urn:x")
    (tmp_path / "answer").write_bytes(answer.SerializeToString())
    program(tmp_path, monkeypatch, f"cat > {tmp_path}/asked; cat {tmp_path}/answer")
    ours = session(tmp_path)
    assert construct(ours, REQUEST) == answer
    assert provider_pb2.ConstructRequest.FromString((tmp_path / "asked").read_bytes()) == REQUEST
    assert not ours.helpers


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (f"echo 'box-0: no such host'; exit {MESSAGE_SHOWN}", "^box-0: no such host\n$"),
        ("exit 1", r"^the parts of sweepstack:index:Sweep a were not all declared.*sweepctl status --stack t$"),
    ],
)
def test_an_error_is_one_message(ends: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, f"cat > /dev/null; {ends}")
    with pytest.raises(SweepstackError, match=says):
        construct(session(tmp_path), REQUEST)


def test_it_ends_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it holds our output open, for which the engine waits."""
    ours = session(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as helper:
        ours.helpers.add(helper)
        ours.cancel()
        assert helper.wait(10) == -9
    program(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(SweepstackError, match="were not all declared"):
        construct(ours, REQUEST)
