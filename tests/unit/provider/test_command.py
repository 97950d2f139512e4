"""Which command plugin is started, and with whose key."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweepstack.onbox.common.errors import ConfigError
from sweepstack.provider.command.select import VARIABLE, VERSION, official, with_key

SECONDS = 120


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody with one key in their home, and no agent."""
    (tmp_path / ".ssh").mkdir()
    key = tmp_path / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "mine", "-f", key], check=True)
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_official_one_where_it_is_installed(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine keeps its plugins in the home of the account, whatever $HOME says."""
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "account")))
    assert official(home) is None
    program(tmp_path / f".pulumi/plugins/resource-command-v{VERSION}/pulumi-resource-command")
    assert official(home) is None, "the engine looks there no more than we do"
    program(tmp_path / "account/.pulumi/plugins/resource-command-v0.9.0/pulumi-resource-command")
    assert official(home) is None, "another version is another protocol"
    engine = program(tmp_path / f"account/.pulumi/plugins/resource-command-v{VERSION}/pulumi-resource-command")
    assert official(home) == engine
    named = program(tmp_path / f"named/plugins/resource-command-v{VERSION}/pulumi-resource-command")
    assert official({**home, "PULUMI_HOME": str(tmp_path / "named")}) == named
    fetched = program(tmp_path / f".cache/sweepstack/command/{VERSION}/pulumi-resource-command")
    assert official(home) == fetched
    elsewhere = program(tmp_path / "own/pulumi-resource-command")
    assert official({**home, VARIABLE: str(elsewhere)}) == elsewhere


def test_a_named_one_that_can_t_be_run_is_refused(home: dict[str, str], tmp_path: Path) -> None:
    home["PULUMI_HOME"] = str(tmp_path / "no engine")
    (tmp_path / "text").write_text("")
    for wrong in ("none", "text", ""):
        if wrong:
            with pytest.raises(ConfigError, match="Next: unset"):
                official({**home, VARIABLE: str(tmp_path / wrong)})
    assert official({**home, VARIABLE: ""}) is None


def keys_there(argv: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(with_key(argv, env), env=env, capture_output=True, text=True, timeout=SECONDS)
    return done.stdout


def test_the_plugin_has_an_agent_with_exactly_the_persons_key(home: dict[str, str], tmp_path: Path) -> None:
    assert keys_there(["ssh-add", "-l"], home).count("mine") == 1
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "named", "-f", other], check=True)
    said = keys_there(["ssh-add", "-l"], {**home, "SWEEPSTACK_SSH_KEY": str(other)})
    assert "named" in said
    assert "mine" not in said


def test_it_is_the_process_that_the_engine_started(home: dict[str, str]) -> None:
    """The engine signals it, and it looks at its parent."""
    tell = [sys.executable, "-c", "import os; print(os.getpid(), os.getppid())"]
    process = subprocess.Popen(with_key(tell, home), env=home, stdout=subprocess.PIPE, text=True)
    said = process.communicate(timeout=SECONDS)[0].split()
    assert said == [str(process.pid), str(os.getpid())]


def test_without_a_key_it_is_started_all_the_same(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    assert with_key(["plugin"], env) == ["plugin"]


def test_what_the_engine_starts_becomes_the_chosen_one(home: dict[str, str], tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.write_text('#!/bin/sh\necho "chosen for $1"\nssh-add -l\n')
    chosen.chmod(0o755)
    start = Path(__file__).resolve().parents[3] / "sweepstack" / "provider" / "command" / "pulumi-resource-command"
    command = [str(start), "127.0.0.1:1"]
    env = {**home, VARIABLE: str(chosen)}
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS).stdout
    assert said.startswith("chosen for 127.0.0.1:1\n")
    assert "mine" in said
    env = {**home, VARIABLE: str(tmp_path / "none")}
    refused = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert refused.returncode != 0
    assert "can't be run" in refused.stderr
