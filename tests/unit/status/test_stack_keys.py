"""The keys of a stack for commands: the engine is asked only where there is one, and says what it can't open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError
from sweepstack.platforms.common import keys
from sweepstack.platforms.runpod import KEY
from sweepstack.status.engine import stack_keys
from sweepstack.status.engine.stack_keys import StackKeys

STATE = {
    "deployment": {
        "resources": [
            {
                "type": stack_keys.PROVIDER,
                "urn": f"urn:pulumi:t::p::{stack_keys.PROVIDER}::{name}",
                "inputs": {KEY.option: {"plaintext": json.dumps(f"key-of-{account}")}, "accounts": {"runpod": account}},
            }
            for name, account in (("default", "ann"), ("acme", "bob"))
        ]
    }
}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the engine is asked; it has the key `of-the-stack` in the config, and `STATE`."""
    told: list[str] = []

    def said(stack: str, root: Path, *words: str) -> bytes:
        told.append(" ".join(words))
        return json.dumps(STATE).encode() if words[0] == "stack" else b"of-the-stack\n"

    monkeypatch.setattr(stack_keys, "_said", said)
    monkeypatch.setattr(stack_keys, "_elsewhere", {})
    monkeypatch.delenv(KEY.variable, raising=False)
    yield told
    keys.look_in(None)


def looking(tmp_path: Path, text: str) -> None:
    (tmp_path / "Pulumi.t.yaml").write_text(text)
    keys.look_in(StackKeys("t", tmp_path, tmp_path / "Pulumi.t.yaml"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("config:\n  sweepstack:runpodApiKey:\n    secure: v1:x\n", "of-the-stack"),
        ("environment:\n- acme/keys\nconfig: {}\n", "of-the-stack"),
        ("config:\n  sweepstack:sweep: {}\n", "of-the-shell"),
    ],
)
def test_a_stacks_key_comes_before_the_environments(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: str
) -> None:
    monkeypatch.setenv(KEY.variable, "of-the-shell")
    looking(tmp_path, text)
    assert {keys.find(KEY) for _ in range(3)} == {found}
    assert asked == (["config get sweepstack:runpodApiKey"] if found == "of-the-stack" else []), (
        "once, where there is one"
    )


def test_another_accounts_key_is_in_the_state(asked: list[str], tmp_path: Path) -> None:
    looking(tmp_path, "config: {}\n")
    assert keys.find(KEY, "bob") == "", "no state was read"
    looking(tmp_path, "config: {}\n")
    stack_keys.note(STATE, "t", tmp_path)
    assert (keys.find(KEY, "bob"), keys.find(KEY, "ann")) == ("key-of-bob", "")
    assert asked == ["stack export --show-secrets"]


def test_a_key_that_can_not_be_opened(asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*words: Any) -> bytes:
        raise SweepstackError("incorrect passphrase")

    monkeypatch.setattr(stack_keys, "_said", refuses)
    looking(tmp_path, "config:\n  sweepstack:runpodApiKey:\n    secure: v1:x\n")
    with pytest.raises(NotAuthorized, match=re.escape("can't be read here: incorrect passphrase. Next: ")):
        keys.find(KEY)
    monkeypatch.setenv(KEY.variable, "of-the-shell")
    assert keys.find(KEY) == "of-the-shell"
