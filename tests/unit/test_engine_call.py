"""A question to the engine that is begun and waited for later: what it answers, and that it never waits for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.engine import call as engine_call
from sweepstack.status.engine.call import EngineCall


def script(folder: Path, text: str) -> str:
    path = folder / "pulumi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_it_works_while_we_do_something_else(tmp_path: Path) -> None:
    """It has begun before it is asked for, and may print more than a pipe holds."""
    call = EngineCall(
        [script(tmp_path, 'touch begun; head -c 300000 /dev/zero; echo "$@" >&2'), "stack", "ls"], tmp_path
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    code, out, complaint = call.answer()
    assert (code, len(out), complaint) == (0, 300_000, "stack ls --non-interactive")


def test_another_backend_is_asked_by_its_url(tmp_path: Path) -> None:
    call = EngineCall([script(tmp_path, 'echo "$PULUMI_BACKEND_URL"; exit 6')], tmp_path, "file:///elsewhere")
    assert call.answer() == (6, b"file:///elsewhere\n", "")


def test_one_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_call, "SECONDS", 0.2)
    call = EngineCall([script(tmp_path, "echo $$ > new; mv new pid; exec sleep 600"), "stack", "export"], tmp_path)
    began = time.monotonic()
    while not (tmp_path / "pid").exists():
        assert time.monotonic() - began < 120
        time.sleep(0.01)
    with pytest.raises(SweepstackError, match="`pulumi stack export` did not answer within 0 s"):
        call.answer()
    assert time.monotonic() - began < 300
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_one_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(SweepstackError, match=r"could not be run: .*make up"):
        EngineCall([str(tmp_path / "nothing"), "whoami"], tmp_path)
