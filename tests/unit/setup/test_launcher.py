"""The launcher sets only what nobody else has set, and becomes the engine with a working SIGINT."""

from __future__ import annotations

import json
import os
import pwd
import runpy
import socket
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweepstack.evidence.sweep_holder import backend_name
from tests.unit.setup.conftest import Checkout

LINUX = sys.platform == "linux"


def test_new_user_gets_a_backend_and_no_passphrase_prompt(checkout: Checkout) -> None:
    seen = checkout.seen("preview", "--stack", "sweep-a")
    state = checkout.home / ".local" / "share" / "sweepstack" / "state"
    assert seen["argv"] == ["preview", "--stack", "sweep-a"]
    assert seen["env"]["PULUMI_BACKEND_URL"] == f"file://{state}"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert seen["env"]["PULUMI_CONFIG_PASSPHRASE"] == ""
    assert seen["env"]["PULUMI_SKIP_UPDATE_CHECK"] == "true"


def test_venv_and_engine_come_first_on_path(checkout: Checkout) -> None:
    path = checkout.seen()["env"]["PATH"].split(":")
    assert path[:2] == [str(checkout.places.bin), str(checkout.engine.parent)]
    assert path[2:] == ["/usr/bin", "/bin"]


def test_environment_wins(checkout: Checkout) -> None:
    given = {
        "PULUMI_BACKEND_URL": "s3://state",
        "PULUMI_CONFIG_PASSPHRASE": "secret",
        "PULUMI_PARALLEL": "3",
        "PULUMI_SKIP_UPDATE_CHECK": "false",
        "PULUMI_HOME": "/tmp/elsewhere",
        "PULUMI_STACK": "other",
        "NO_COLOR": "1",
    }
    env = checkout.seen(**given)["env"]
    assert {key: env[key] for key in given} == given
    assert not (checkout.home / ".local").exists()


def test_passphrase_file_counts_as_a_passphrase(checkout: Checkout) -> None:
    assert "PULUMI_CONFIG_PASSPHRASE" not in checkout.seen(PULUMI_CONFIG_PASSPHRASE_FILE="/some/file")["env"]


def test_pulumi_login_wins(checkout: Checkout, tmp_path: Path) -> None:
    folder = tmp_path / "login"
    folder.mkdir()
    (folder / "credentials.json").write_text('{"current": "https://api.example.com"}')
    assert "PULUMI_BACKEND_URL" not in checkout.seen(PULUMI_HOME=str(folder))["env"]


def test_a_login_is_looked_for_where_the_engine_keeps_it(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the home of the account: `pulumi login` was ignored in a container with another $HOME."""
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "account")))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    (tmp_path / "account" / ".pulumi").mkdir(parents=True)
    (tmp_path / "account" / ".pulumi" / "credentials.json").write_text('{"current": "https://api.example.com"}')
    launcher = runpy.run_path(str(checkout.places.bin / "pulumi"))
    assert launcher["names_backend"]({"HOME": str(checkout.home)}, str(tmp_path))
    assert backend_name() == "https://api.example.com"


def test_logged_out_user_gets_the_default(checkout: Checkout) -> None:
    (checkout.home / ".pulumi").mkdir()
    (checkout.home / ".pulumi" / "credentials.json").write_text('{"current": "", "accounts": {}}')
    assert checkout.seen()["env"]["PULUMI_BACKEND_URL"].startswith("file:///")


def test_damaged_login_is_left_to_the_engine(checkout: Checkout) -> None:
    (checkout.home / ".pulumi").mkdir()
    (checkout.home / ".pulumi" / "credentials.json").write_text('{"current": "https://api')
    assert "PULUMI_BACKEND_URL" not in checkout.seen()["env"]


@pytest.mark.parametrize("by_flag", [False, True])
def test_backend_of_the_project_wins(checkout: Checkout, tmp_path: Path, by_flag: bool) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "Pulumi.yaml").write_text("name: other\nruntime: python\nbackend:\n  url: s3://theirs\n")
    done = checkout.seen("-C", str(project), "up") if by_flag else checkout.seen("up", cwd=project / "sub")
    assert "PULUMI_BACKEND_URL" not in done["env"]


def test_data_home_is_honoured_and_its_name_is_encoded(checkout: Checkout, tmp_path: Path) -> None:
    data = tmp_path / "50% of #1?"
    env = checkout.seen(XDG_DATA_HOME=str(data))["env"]
    assert (data / "sweepstack" / "state").is_dir()
    assert env["PULUMI_BACKEND_URL"] == f"file://{tmp_path}/50%25 of %231%3F/sweepstack/state"


def test_relative_data_home_is_ignored(checkout: Checkout) -> None:
    env = checkout.seen(XDG_DATA_HOME="data")["env"]
    assert env["PULUMI_BACKEND_URL"] == f"file://{checkout.home}/.local/share/sweepstack/state"


def test_data_folder_that_cannot_be_made_is_one_clear_error(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = checkout.start(XDG_DATA_HOME=str(tmp_path / "file"))
    assert done.returncode == 126
    assert done.stderr.startswith("error: cannot start pulumi:")
    assert "Traceback" not in done.stderr


def test_plugin_downloads_are_off_only_where_the_host_is_out_of_reach(checkout: Checkout) -> None:
    assert "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION" not in checkout.seen()["env"]
    checkout.install(offline=True)
    assert checkout.seen()["env"]["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"


@pytest.mark.parametrize("before", ['"$@"', "trap '' INT; \"$@\"", '"$@" & wait'])
def test_sigint_works_however_we_were_started(checkout: Checkout, before: str) -> None:
    seen = checkout.seen(before=before)
    assert (seen["ignored"], seen["blocked"]) == (False, False)


def test_secret_under_an_empty_passphrase_is_warned_about(checkout: Checkout) -> None:
    words = ("config", "set", "--secret", "token", "x")
    assert "empty passphrase" in checkout.start(*words).stderr
    assert checkout.start(*words, PULUMI_CONFIG_PASSPHRASE="good").stderr == ""


def test_missing_engine_is_one_clear_error(checkout: Checkout) -> None:
    checkout.engine.unlink()
    done = checkout.start("up")
    assert done.returncode == 127
    assert "Next: `make up`" in done.stderr


def test_exit_code_and_output_are_the_engines(checkout: Checkout) -> None:
    checkout.engine.write_text("#!/bin/sh\necho out; echo err >&2; exit 8\n")
    done = checkout.start("up")
    assert (done.returncode, done.stdout, done.stderr) == (8, "out\n", "err\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("stack", "rm", "sweep-a", "--yes"), True),
        (("stack", "--yes", "rm", "sweep-a"), True),
        (("stack", "rm", "sweep-a", "--preserve-config"), False),
        (("stack", "ls"), False),
        (("destroy", "--stack", "rm"), False),
    ],
)
def test_stack_rm_is_told_to_delete_the_stack_file(checkout: Checkout, argv: tuple[str, ...], said: bool) -> None:
    result = checkout.start(*argv)
    assert ("--preserve-config keeps it" in result.stderr) == said
    assert checkout.seen(*argv)["argv"] == list(argv), "the command itself is the person's"


def test_a_destroy_prints_no_outputs_after_a_refusal(checkout: Checkout) -> None:
    assert checkout.seen("destroy", "--stack", "s")["env"]["PULUMI_OPTION_SUPPRESS_OUTPUTS"] == "true"
    assert "PULUMI_OPTION_SUPPRESS_OUTPUTS" not in checkout.seen("up")["env"]
    given = checkout.seen("destroy", PULUMI_OPTION_SUPPRESS_OUTPUTS="false")["env"]
    assert given["PULUMI_OPTION_SUPPRESS_OUTPUTS"] == "false"


@pytest.mark.parametrize(
    ("host", "pid", "stays"),
    [
        ("here", 2**22 + 1, False),  # no kernel gives a pid that large
        ("here", os.getpid(), True),
        ("there", 2**22 + 1, True),
        ("here", "x", True),
        ("here", 0, True),
    ],
    ids=["ended", "runs", "other_host", "no_number", "zero"],
)
def test_a_lock_of_a_process_that_has_ended_here_is_taken_away(
    checkout: Checkout, tmp_path: Path, host: str, pid: int | str, stays: bool
) -> None:
    """`pulumi destroy | head -3` ends the engine before it can give its lock back."""
    lock = tmp_path / "my state" / ".pulumi" / "locks" / "organization" / "sweepstack" / "sweep-a" / "x.json"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": pid, "hostname": socket.gethostname() if host == "here" else "another-host"}))
    done = checkout.start("up", PULUMI_BACKEND_URL=f"file://{tmp_path}/my%20state")
    assert done.returncode == 0, done.stderr
    assert lock.exists() is stays
    assert (done.stderr == "") is stays, done.stderr
    assert stays or f"process {pid}, which has ended, locked the state: took away {lock}" in done.stderr


LIST = "config:\n  sweepstack:sweep:\n    cells: {list: [" + "{lr: 1, name: one-of-the-many-cells}, " * 4000 + "]}\n"


ALIASES = "config:\n  sweepstack:sweep:\n    job: &a [" + "xxxxxxxx, " * 99 + "]\n    cells: [" + "*a, " * 999 + "]\n"


def _project(checkout: Checkout, folder: Path, text: str) -> None:
    """A project with one stack file, where the launcher's Python has our reader, as that of a checkout has."""
    for name in ("pyvenv.cfg", "lib"):
        (checkout.places.bin.parent / name).symlink_to(Path(sys.prefix) / name)
    (folder / "stacks").mkdir()
    (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: stacks\n")
    (folder / "stacks" / "Pulumi.a.yaml").write_text(text)


@pytest.mark.skipif(not LINUX, reason="its bound of one argument")
@pytest.mark.parametrize(
    ("text", "why"), [(LIST, "3: it is too long"), (ALIASES, "4: it is too long")], ids=["list", "aliases"]
)
def test_a_file_too_long_for_the_engine_is_our_error_where_a_program_runs(
    checkout: Checkout, tmp_path: Path, text: str, why: str
) -> None:
    _project(checkout, tmp_path, text)
    done = checkout.start("preview", "--stack", "org/project/a", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: stacks/Pulumi.a.yaml, line {why} for the engine: ")
    assert "most is in cells" in done.stderr
    assert ". Next: write the cells as grid" in done.stderr
    assert checkout.start("destroy", "--stack=a", cwd=tmp_path).returncode == 0, "it runs no program"


TORN = {
    "tab": "config:\n  sweepstack:sweep:\n\tjob: {}\n",
    "text": "config:\n  sweepstack:sweep:\n    job: {run: 'python train.py\n",
    "braces": "config:\n  sweepstack:sweep: {job: {run: x}\n",
    "indent": "config:\n  sweepstack:sweep:\n    job:\n      run: x\n   cells: {}\n",
    "bytes": "config:\n  sweepstack:sweep: {job: \x00}\n",
}


@pytest.mark.parametrize("command", ["up", "destroy", "refresh", "import"])
@pytest.mark.parametrize("how", TORN)
def test_a_file_that_is_no_yaml_is_our_error(checkout: Checkout, tmp_path: Path, how: str, command: str) -> None:
    _project(checkout, tmp_path, TORN[how])
    done = checkout.start(command, "--stack", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: stacks/Pulumi.a.yaml, line ")
    assert ": not valid YAML: " in done.stderr
    assert ("write spaces" in done.stderr) is (how == "tab")


@pytest.mark.parametrize("command", ["up", "destroy"])
def test_our_reader_is_asked_only_where_it_may_find_something(checkout: Checkout, tmp_path: Path, command: str) -> None:
    """It takes 0.2 s to start. It would refuse this depth, which the program says as well."""
    lists = ", ".join(map(str, range(10_000)))
    text = f"config:\n  x: {{run: 'a && b', seed: [{lists}]}} # isn't torn\n  deep: {'[' * 60}{']' * 60}\n"
    _project(checkout, tmp_path, text)
    done = checkout.start(command, "--stack", "a", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_tab_that_yaml_takes_is_no_mistake(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.a.yaml").write_text("config:\n  x: |\n    a\n    \tb: 1\n\t\n")
    done = checkout.start("up", cwd=tmp_path, PULUMI_STACK="a")
    assert (done.returncode, done.stderr) == (0, "")
