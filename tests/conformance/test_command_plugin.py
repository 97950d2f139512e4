"""What a plugin for Pulumi's package `command` does, over its own protocol, against a real sshd.

By default the plugin is the stand-in of this checkout. With SWEEPSTACK_COMMAND_PLUGIN=/path/to/pulumi-resource-command
it is the official one, and the same has to hold (run against 1.2.1).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2

from sweepstack.core.engine_secret import SIGNATURE_KEY
from sweepstack.provider.wire import UNKNOWN, Secret, bare
from tests.conformance.command_plugin import NAME, SECONDS, Plugin
from tests.simulators.host import Host
from tests.simulators.machines import require

ROOT = Path(__file__).resolve().parents[2]
REAL = os.environ.get("SWEEPSTACK_COMMAND_PLUGIN", "")
COMMAND, COPY = "command:remote:Command", "command:remote:CopyToRemote"
ASSET, ARCHIVE = "c44067f5952c0a294b673a41bacd8c17", "0def7320c3a5731c473e5ecbe6d01bc7"
"""The engine's marks of the two (sdk/go/common/resource/sig)."""


def start(**env: str) -> Plugin:
    argv = [REAL] if REAL else [sys.executable, "-P", "-m", "sweepstack.provider.command.fallback_plugin"]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return Plugin(argv, {**kept, "PYTHONPATH": str(ROOT), **env})


@pytest.fixture(scope="module")
def plugin() -> Iterator[Plugin]:
    require()
    started = start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A stock sshd: it lets no environment variables in."""
    require()
    made = Host(tmp_path_factory.mktemp("host") / "stock")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def willing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """An sshd that lets all environment variables in."""
    require()
    made = Host(tmp_path_factory.mktemp("host") / "willing", "AcceptEnv *\n")
    yield made
    made.stop()


def to(host: Host, **changes: Any) -> Secret:
    """A checked connection. A change to None takes the key away."""
    connection = {
        "host": "127.0.0.1",
        "port": host.port,
        "user": host.user,
        "privateKey": Secret(host.key.read_text()),
        "dialErrorLimit": 1,
        "perDialTimeout": 15,
        **changes,
    }
    return Secret({name: value for name, value in connection.items() if value is not None})


def failure(call: Any, *args: Any, **kwargs: Any) -> str:
    """What it says when it refuses."""
    with pytest.raises(grpc.RpcError) as raised:
        call(*args, **kwargs)
    return str(raised.value.details())  # type: ignore[attr-defined]


# what it is


def test_its_version_says_what_it_is(plugin: Plugin) -> None:
    version = plugin.call("GetPluginInfo", empty_pb2.Empty()).version
    assert version.startswith("1.")
    assert ("standin" in version) is not bool(REAL)


def test_the_stand_in_says_so_where_it_acts(host: Host) -> None:
    if REAL:
        pytest.skip("the official one is nobody's stand-in")
    own = start()
    try:
        own.create(COMMAND, {"connection": to(host), "create": "true", "logging": "none"})
        own.create(COMMAND, {"connection": to(host), "create": "true", "logging": "none"})
        assert [line.text for line in own.lines] == ["sweepstack's stand-in for pulumi-command 1.2.1 acts here"]
        assert not own.lines[0].ephemeral
        assert "stand-in" in failure(own.create, COMMAND, {"connection": to(host), "create": "false"})
        assert "stand-in" in own.check(COMMAND, {})[1]["connection"]
    finally:
        own.close()


def test_it_takes_secrets_and_previews(plugin: Plugin) -> None:
    assert plugin.configured.acceptSecrets
    assert plugin.configured.supportsPreview


def test_it_ends_when_the_engine_says_so() -> None:
    own = start()
    own.call("Cancel", empty_pb2.Empty())
    own.close()


# check


def test_check_completes_the_connection_and_marks_it_secret(plugin: Plugin) -> None:
    given = {"host": "h", "privateKey": "k", "proxy": {"host": "b"}}
    inputs, failures = plugin.check(COMMAND, {"connection": given, "create": "true"})
    assert failures == {}
    assert isinstance(inputs["connection"], Secret)
    inner = inputs["connection"].value
    assert inner["privateKey"] == Secret("k")
    defaults = {"port": 22, "user": "root", "dialErrorLimit": 10, "perDialTimeout": 15}
    assert bare(inner) == {"host": "h", "privateKey": "k", "proxy": {"host": "b", **defaults}, **defaults}


def test_check_keeps_what_is_given(plugin: Plugin) -> None:
    given = {
        "connection": Secret({"host": "h", "port": 2, "user": "u", "dialErrorLimit": -1, "perDialTimeout": 0}),
        "create": "c",
        "update": "u",
        "delete": "d",
        "triggers": [1, "a"],
        "stdin": Secret("s"),
        "environment": {"A": "b"},
        "logging": "none",
        "addPreviousOutputInEnv": False,
    }
    inputs, failures = plugin.check(COMMAND, given)
    assert failures == {}
    assert inputs == given


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ({}, "connection", "Missing required field 'connection'"),
        ({"connection": {}}, "connection", "Missing required field 'host'"),
        ({"connection": {"host": "h", "hots": "x"}}, "connection", "Unrecognized field 'hots'"),
        ({"connection": {"host": "h", "port": "22"}}, "connection", "Field 'port' on"),
        ({"connection": {"host": "h", "proxy": {"port": 22}}}, "connection", "Missing required field 'host'"),
        ({"connection": {"host": "h"}, "creat": "x"}, "creat", "Unrecognized field 'creat'"),
        ({"connection": {"host": "h"}, "create": 3}, "create", "must be a 'string'"),
        ({"connection": {"host": "h"}, "stdin": ["a"]}, "stdin", "must be a 'string'"),
        ({"connection": {"host": "h"}, "addPreviousOutputInEnv": "no"}, "addPreviousOutputInEnv", "must be a 'bool'"),
        ({"connection": {"host": "h"}, "environment": "x"}, "environment", "Field 'environment'"),
        ({"connection": {"host": "h"}, "triggers": "x"}, "triggers", "Field 'triggers'"),
    ],
)
def test_check_refuses(plugin: Plugin, given: dict[str, Any], where: str, said: str) -> None:
    _, failures = plugin.check(COMMAND, given)
    assert list(failures) == [where]
    assert said in failures[where]


def test_check_names_all_mistakes_at_once(plugin: Plugin) -> None:
    _, failures = plugin.check(COMMAND, {"connection": {"host": "h", "port": "x"}, "create": 1, "stdin": 2})
    assert set(failures) == {"connection", "create", "stdin"}


def test_check_lets_pass_what_a_preview_does_not_know(plugin: Plugin) -> None:
    given = {"connection": {"host": UNKNOWN, "privateKey": Secret("k")}, "create": UNKNOWN, "stdin": UNKNOWN}
    inputs, failures = plugin.check(COMMAND, given)
    assert failures == {}
    assert repr(inputs["create"]) == repr(UNKNOWN)
    assert repr(bare(inputs["connection"])["host"]) == repr(UNKNOWN)


# diff

OLD: dict[str, Any] = {"create": "a", "stdout": "so", "stderr": "se"}
CONNECTION = {"host": "h", "port": 22, "user": "root", "dialErrorLimit": 10, "perDialTimeout": 15}


@pytest.mark.parametrize(
    ("old", "new", "paths", "replaces"),
    [
        ({}, {}, {}, []),
        ({}, {"create": "b"}, {"create": "UPDATE"}, []),
        ({}, {"create": UNKNOWN}, {"create": "UPDATE"}, []),
        ({}, {"update": "u"}, {"update": "ADD"}, []),
        ({"update": "u"}, {"update": None}, {"update": "DELETE"}, []),
        ({"delete": "x"}, {"delete": "y"}, {"delete": "UPDATE"}, []),
        ({"stdin": "x"}, {"stdin": "y"}, {"stdin": "UPDATE"}, []),
        ({"stdin": Secret("x")}, {"stdin": Secret("y")}, {"stdin": "UPDATE"}, []),
        ({"stdin": Secret("x")}, {"stdin": Secret("x")}, {}, []),
        ({"logging": "none"}, {"logging": "stdout"}, {"logging": "UPDATE"}, []),
        ({"addPreviousOutputInEnv": False}, {"addPreviousOutputInEnv": True}, {"addPreviousOutputInEnv": "UPDATE"}, []),
        (
            {"environment": {"A": "1", "C": "x"}},
            {"environment": {"A": "2", "B": "3"}},
            {"environment.A": "UPDATE", "environment.B": "ADD", "environment.C": "DELETE"},
            [],
        ),
        # A changed trigger is an update to the plugin: the replace is asked for by the SDK (replaceOnChanges).
        ({}, {"triggers": [1]}, {"triggers": "ADD_REPLACE"}, ["triggers"]),
        ({"triggers": [1]}, {"triggers": None}, {"triggers": "DELETE_REPLACE"}, ["triggers"]),
        ({"triggers": [1]}, {"triggers": [2]}, {"triggers[0]": "UPDATE"}, []),
        ({"triggers": [1]}, {"triggers": [1, 2]}, {"triggers[1]": "ADD"}, []),
        ({}, {"connection": Secret({**CONNECTION, "host": "other"})}, {"connection": "UPDATE"}, []),
        ({}, {"connection": Secret({**CONNECTION, "hostKey": "k"})}, {"connection": "UPDATE"}, []),
        ({}, {"connection": UNKNOWN}, {"connection": "UPDATE"}, []),
    ],
)
def test_diff(plugin: Plugin, old: dict[str, Any], new: dict[str, Any], paths: Any, replaces: list[str]) -> None:
    olds = {"connection": Secret(CONNECTION), **OLD, **old}
    news = {name: value for name, value in {**olds, **new}.items() if name not in ("stdout", "stderr")}
    news = {name: value for name, value in news.items() if value is not None}
    assert plugin.diff(COMMAND, olds, news) == (paths, replaces)


# create, update, delete, read


def test_create_runs_it_in_the_login_s_shell_and_keeps_what_it_said(plugin: Plugin, host: Host) -> None:
    inputs = {"connection": to(host), "create": 'echo "out  $HOME"; echo; echo é >&2; test -t 0 || echo no-tty'}
    identifier, outputs = plugin.create(COMMAND, inputs)
    assert identifier.startswith(NAME)
    assert len(identifier) == len(NAME) + 8
    assert outputs == {**inputs, "stdout": f"out  {host.home}\n\nno-tty", "stderr": "é"}


def test_only_the_last_newline_of_the_output_is_cut(plugin: Plugin, host: Host) -> None:
    _, outputs = plugin.create(COMMAND, {"connection": to(host), "create": "printf 'a\\r\\n\\n'; printf b >&2"})
    assert (outputs["stdout"], outputs["stderr"]) == ("a\r\n", "b")


def test_without_create_nothing_is_dialed(plugin: Plugin, host: Host) -> None:
    _, outputs = plugin.create(COMMAND, {"connection": to(host, port=1), "delete": "true"})
    assert (outputs["stdout"], outputs["stderr"]) == ("", "")


def test_a_preview_runs_nothing(plugin: Plugin, host: Host) -> None:
    inputs = {"connection": to(host), "create": "touch $HOME/previewed"}
    _, outputs = plugin.create(COMMAND, inputs, preview=True)
    assert {name: repr(outputs[name]) for name in ("stdout", "stderr")} == dict.fromkeys(
        ("stdout", "stderr"), repr(UNKNOWN)
    )
    plugin.create(COMMAND, {"connection": UNKNOWN, "create": UNKNOWN}, preview=True)
    olds = {**inputs, "stdout": "x", "stderr": ""}
    assert plugin.update(COMMAND, olds, inputs, preview=True) == olds
    previewed = plugin.update(COMMAND, olds, {**inputs, "create": "touch $HOME/previewed # again"}, preview=True)
    assert repr(previewed["stdout"]) == repr(UNKNOWN)
    assert not (host.home / "previewed").exists()


@pytest.mark.parametrize("code", [1, 7, 126, 255])
def test_a_failure_names_code_command_and_what_was_said(plugin: Plugin, host: Host, code: int) -> None:
    said = failure(plugin.create, COMMAND, {"connection": to(host), "create": f'echo "o"; echo e >&2; exit {code}'})
    assert f"Process exited with status {code}: " in said
    assert f'running "echo \\"o\\"; echo e >&2; exit {code}":' in said
    assert "o" in said.splitlines()
    assert "e" in said.splitlines()


def test_an_end_by_a_signal_is_a_failure(plugin: Plugin, host: Host) -> None:
    said = failure(plugin.create, COMMAND, {"connection": to(host), "create": "kill -9 $$"})
    assert "signal" in said
    assert "Process exited" in said


def test_stdin_arrives_whole_and_ends(plugin: Plugin, host: Host) -> None:
    text = 'it\'s\n"two"\t\\lines\n'
    inputs = {"connection": to(host), "create": "cat > $HOME/stdin; wc -c < $HOME/stdin", "stdin": Secret(text)}
    _, outputs = plugin.create(COMMAND, inputs)
    assert (host.home / "stdin").read_text() == text
    assert outputs["stdin"] == Secret(text)
    assert outputs["stdout"].strip() == str(len(text))
    big = "z" * 300_000
    assert plugin.create(COMMAND, {**inputs, "create": "wc -c", "stdin": big})[1]["stdout"].strip() == str(len(big))
    assert plugin.create(COMMAND, {**inputs, "create": "echo unread", "stdin": big})[1]["stdout"] == "unread"


def test_a_secret_that_a_command_echoes_is_not_secret_any_more(plugin: Plugin, host: Host) -> None:
    """Why nothing of ours gives a command a secret."""
    _, outputs = plugin.create(COMMAND, {"connection": to(host), "create": "cat", "stdin": Secret("hunter2pass")})
    assert outputs["stdout"] == "hunter2pass"
    assert "hunter2pass" in plugin.logged()


def test_update_runs_update_else_create_and_else_nothing(plugin: Plugin, host: Host) -> None:
    olds = {"connection": to(host), "create": "echo a", "stdout": "so", "stderr": "se"}
    news = {"connection": to(host), "create": "echo b", "addPreviousOutputInEnv": False}
    assert plugin.update(COMMAND, olds, news) == {**news, "stdout": "b", "stderr": ""}
    assert plugin.update(COMMAND, olds, {**news, "update": "echo u"})["stdout"] == "u"
    bare_ones = {"connection": to(host, port=1)}
    assert plugin.update(COMMAND, olds, bare_ones) == {**bare_ones, "stdout": "so", "stderr": "se"}
    assert "status 3" in failure(plugin.update, COMMAND, olds, {**news, "create": "exit 3"})


def test_delete_runs_delete_and_only_then_dials(plugin: Plugin, host: Host) -> None:
    state = {"connection": to(host, port=1), "create": "a", "stdout": "", "stderr": ""}
    plugin.delete(COMMAND, state)
    there = {**state, "connection": to(host)}
    plugin.delete(COMMAND, {**there, "delete": "touch $HOME/deleted"})
    assert (host.home / "deleted").exists()
    assert "status 9" in failure(plugin.delete, COMMAND, {**there, "delete": "exit 9"})
    assert "refused" in failure(plugin.delete, COMMAND, {**state, "delete": "true"}).lower()


def test_read_asks_nobody(plugin: Plugin, host: Host) -> None:
    inputs = {"connection": to(host, port=1), "create": "a", "stdin": Secret("q")}
    state = {**inputs, "stdout": "so", "stderr": "se"}
    assert plugin.read(COMMAND, inputs, state) == ("one", state)


# what is logged


@pytest.mark.parametrize(
    ("logging", "shown"),
    [(None, {"o1", "e1"}), ("stdoutAndStderr", {"o1", "e1"}), ("stdout", {"o1"}), ("stderr", {"e1"}), ("none", set())],
)
def test_logging(plugin: Plugin, host: Host, logging: str | None, shown: set[str]) -> None:
    plugin.lines.clear()
    inputs = {"connection": to(host), "create": "echo o1; echo e1 >&2", **({"logging": logging} if logging else {})}
    _, outputs = plugin.create(COMMAND, inputs)
    assert (outputs["stdout"], outputs["stderr"]) == ("o1", "e1"), "kept, whatever is logged"
    lines = [line for line in plugin.lines if "stand-in" not in line.text]
    assert {line.text for line in lines} == shown
    assert all((line.severity, line.ephemeral) == ("INFO", True) for line in lines)


def test_lines_are_logged_while_the_command_runs(plugin: Plugin, host: Host) -> None:
    inputs = {"connection": to(host), "create": "echo begun-now; while [ ! -e $HOME/go ]; do sleep 0.05; done"}
    running = threading.Thread(target=plugin.create, args=(COMMAND, inputs))
    running.start()
    plugin.wait_for("begun-now")
    assert running.is_alive()
    (host.home / "go").touch()
    running.join(SECONDS)
    assert not running.is_alive()


# environment


def test_the_environment_needs_a_server_that_lets_it_in(plugin: Plugin, host: Host) -> None:
    inputs = {"connection": to(host), "create": "touch $HOME/ran-without", "environment": {"FOO": "bar"}}
    said = failure(plugin.create, COMMAND, inputs)
    assert "could not set environment variable" in said
    assert "FOO" in said
    assert "AcceptEnv" in said + plugin.logged()
    assert not (host.home / "ran-without").exists()


def test_the_environment_arrives_as_it_is(plugin: Plugin, willing: Host) -> None:
    value = "b a'r\"\n$HOME"
    inputs = {"connection": to(willing), "create": 'printf "%s|%s" "$FOO" "$EMPTY"'}
    _, outputs = plugin.create(COMMAND, {**inputs, "environment": {"FOO": value, "EMPTY": ""}})
    assert outputs["stdout"] == f"{value}|"
    assert outputs["environment"] == {"FOO": value, "EMPTY": ""}


def test_what_was_said_before_is_handed_on(plugin: Plugin, willing: Host) -> None:
    command = 'echo "$PULUMI_COMMAND_STDOUT|$PULUMI_COMMAND_STDERR"'
    olds = {"connection": to(willing), "create": "a", "stdout": "OLD\nout", "stderr": "E"}
    news = {"connection": to(willing), "create": command}
    assert plugin.update(COMMAND, olds, news)["stdout"] == "OLD\nout|E"
    assert plugin.update(COMMAND, olds, {**news, "addPreviousOutputInEnv": False})["stdout"] == "|"
    plugin.delete(COMMAND, {**olds, "delete": f"{command} > $HOME/said"})
    assert (willing.home / "said").read_text() == "OLD\nout|E\n"


def test_where_it_can_t_be_handed_on_a_warning_says_so(plugin: Plugin, host: Host) -> None:
    olds = {"connection": to(host), "create": "a", "stdout": "x", "stderr": ""}
    plugin.lines.clear()
    assert plugin.update(COMMAND, olds, {"connection": to(host), "create": "echo ran"})["stdout"] == "ran"
    warned = [line.text for line in plugin.lines if line.severity == "WARNING"]
    assert len(warned) == 1
    assert "PULUMI_COMMAND_STDOUT" in warned[0]
    plugin.lines.clear()
    plugin.update(COMMAND, olds, {"connection": to(host), "create": "true", "addPreviousOutputInEnv": False})
    assert not [line for line in plugin.lines if line.severity == "WARNING"]


# connections


def test_the_host_key_is_checked_where_one_is_named(plugin: Plugin, host: Host) -> None:
    inputs = {"create": "echo hi"}
    right = (host.folder / "host_key.pub").read_text()
    assert plugin.create(COMMAND, {**inputs, "connection": to(host, hostKey=right)})[1]["stdout"] == "hi"
    assert plugin.create(COMMAND, {**inputs, "connection": to(host)})[1]["stdout"] == "hi"
    wrong = (host.folder / "id.pub").read_text()
    said = failure(plugin.create, COMMAND, {**inputs, "connection": to(host, hostKey=wrong)})
    assert "after 1 failed attempts" in said
    assert "host key mismatch" in said
    assert "failed to parse host key" in failure(
        plugin.create, COMMAND, {**inputs, "connection": to(host, hostKey="nonsense")}
    )


def test_dials_are_counted_and_told(plugin: Plugin, host: Host) -> None:
    plugin.lines.clear()
    said = failure(plugin.create, COMMAND, {"connection": to(host, port=1, dialErrorLimit=2), "create": "true"})
    assert "after 2 failed attempts" in said
    assert "refused" in said.lower()
    told = [line for line in plugin.lines if "stand-in" not in line.text]
    assert [line.text for line in told] == ["Dial 1/2 failed: retrying", "Dial 2/2 failed: retrying"]
    assert all(line.ephemeral for line in told)
    said = failure(plugin.create, COMMAND, {"connection": to(host, port=1, dialErrorLimit=0), "create": "true"})
    assert "after 0 failed attempts" in said


def test_a_host_that_comes_back_is_reached(plugin: Plugin, tmp_path: Path) -> None:
    late = Host(tmp_path / "late")
    late.stop()
    done: list[Any] = []
    inputs = {"connection": to(late, dialErrorLimit=-1), "create": "echo hi"}
    plugin.lines.clear()
    running = threading.Thread(target=lambda: done.append(plugin.create(COMMAND, inputs)[1]["stdout"]))
    running.start()
    try:
        plugin.wait_for("Dial 1/inf failed: retrying")
        late.start()
        running.join(SECONDS)
        assert done == ["hi"]
    finally:
        late.stop()


def test_who_is_not_let_in_is_told_so(plugin: Plugin, host: Host, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    other = Secret((tmp_path / "other").read_text())
    said = failure(plugin.create, COMMAND, {"connection": to(host, privateKey=other), "create": "true"})
    assert "unable to authenticate" in said
    said = failure(plugin.create, COMMAND, {"connection": to(host, privateKey=None), "create": "true"})
    assert "unable to authenticate" in said
    plugin.lines.clear()
    said = failure(plugin.create, COMMAND, {"connection": to(host, privateKey=Secret("no key")), "create": "true"})
    assert "no key found" in said
    assert "Dial" not in plugin.logged(), "no dial can help"


def test_an_agent_holds_the_key(plugin: Plugin, host: Host, tmp_path: Path) -> None:
    address = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", address], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    agent.stdout.readline()  # it listens
    try:
        subprocess.run(["ssh-add", "-q", host.key], env={**os.environ, "SSH_AUTH_SOCK": str(address)}, check=True)
        inputs = {"connection": to(host, privateKey=None, agentSocketPath=str(address)), "create": "echo hi"}
        assert plugin.create(COMMAND, inputs)[1]["stdout"] == "hi"
        own = start(SSH_AUTH_SOCK=str(address))
        try:
            inputs = {"connection": to(host, privateKey=None), "create": "echo hi"}
            assert own.create(COMMAND, inputs)[1]["stdout"] == "hi"
        finally:
            own.close()
    finally:
        agent.terminate()
        agent.wait()
    said = failure(
        plugin.create,
        COMMAND,
        {"connection": to(host, privateKey=None, agentSocketPath=str(tmp_path / "none")), "create": "true"},
    )
    assert "no such file or directory" in said


def test_a_proxy_is_gone_through(plugin: Plugin, host: Host, willing: Host) -> None:
    proxy = bare(to(willing))
    inputs = {"connection": to(host, proxy=proxy), "create": "echo $HOME"}
    assert plugin.create(COMMAND, inputs)[1]["stdout"] == str(host.home)
    for changes, words in [
        ({"proxy": {**proxy, "port": 1}}, "refused"),
        ({"proxy": proxy, "port": 1}, "refused"),
        ({"proxy": {**proxy, "hostKey": (host.folder / "id.pub").read_text()}}, "host key mismatch"),
    ]:
        said = failure(plugin.create, COMMAND, {"connection": to(host, **changes), "create": "true"})
        assert said.startswith("proxy: after 1 failed attempts"), said
        assert words in said.lower()


# what comes in between


def test_a_cut_is_a_failure_and_the_command_goes_on(plugin: Plugin, tmp_path: Path) -> None:
    own = Host(tmp_path / "own")
    said: list[str] = []
    command = "echo cut-me; while [ ! -e $HOME/go ]; do sleep 0.05; done; touch $HOME/went-on"
    inputs = {"connection": to(own), "create": command}
    running = threading.Thread(target=lambda: said.append(failure(plugin.create, COMMAND, inputs)))
    running.start()
    plugin.wait_for("cut-me")
    own.stop()
    running.join(SECONDS)
    (own.home / "go").touch()
    assert "without exit status or exit signal" in said[0]
    waited = threading.Event()
    while not (own.home / "went-on").exists() and not waited.wait(0.02):
        pass


def test_cancel_ends_the_dials_but_no_command(host: Host) -> None:
    own = start()
    try:
        done: list[Any] = []
        inputs = {"connection": to(host), "create": "echo running; while [ ! -e $HOME/cancel-go ]; do sleep 0.05; done"}
        running = threading.Thread(target=lambda: done.append(own.create(COMMAND, inputs)[1]["stdout"]))
        dials = {"connection": to(host, port=1, dialErrorLimit=-1), "create": "true"}
        dialing = threading.Thread(target=lambda: done.append(failure(own.create, COMMAND, dials)))
        running.start()
        dialing.start()
        own.wait_for("running")
        own.wait_for("Dial 1/inf failed: retrying")
        own.call("Cancel", empty_pb2.Empty())
        dialing.join(SECONDS)
        assert len(done) == 1
        assert "context canceled" in done[0]
        (host.home / "cancel-go").touch()
        running.join(SECONDS)
        assert done[1:] == ["running"]
    finally:
        own.close()


# CopyToRemote


def file_asset(path: Path) -> dict[str, str]:
    content = path.read_bytes() if path.exists() else b""
    return {SIGNATURE_KEY: ASSET, "path": str(path), "hash": hashlib.sha256(content).hexdigest()}


def text_asset(text: str) -> dict[str, str]:
    return {SIGNATURE_KEY: ASSET, "text": text, "hash": hashlib.sha256(text.encode()).hexdigest()}


def archive(path: str | Path, digest: str = "h") -> dict[str, str]:
    return {SIGNATURE_KEY: ARCHIVE, "path": str(path), "hash": digest}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "sub" / "empty").mkdir(parents=True)
    (made / "a b'\n.txt").write_text("1")
    (made / "sub" / "x").write_text("2")
    (made / "sub" / "link").symlink_to("x")
    (made / "a b'\n.txt").chmod(0o700)
    return made


IN_FOLDER = {"a b'\n.txt": "1", "sub": None, "sub/empty": None, "sub/link": "2", "sub/x": "2"}


def contents(root: Path) -> dict[str, str | None]:
    found = sorted(root.rglob("*"))
    assert not [path for path in found if path.is_symlink()], "links become what they lead to"
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else None for path in found}


def test_copy_check(plugin: Plugin, host: Host, tmp_path: Path) -> None:
    def wrong(**inputs: Any) -> dict[str, str]:
        return plugin.check(COPY, {"connection": to(host), **inputs})[1]

    assert wrong(source=text_asset("x"), remotePath="/x") == {}
    assert wrong(source=archive(tmp_path), remotePath=UNKNOWN) == {}
    assert {"source", "remotePath"} <= set(wrong())
    assert set(wrong(source=text_asset("x"), remotePath=3)) == {"remotePath"}


def test_the_stand_in_refuses_at_once_what_it_can_t_do(plugin: Plugin, host: Host) -> None:
    if REAL:
        pytest.skip("the official one can")
    remote = {"connection": to(host), "remotePath": "/x"}
    address = {SIGNATURE_KEY: ASSET, "uri": "http://x", "hash": "h"}
    assert "asset" in plugin.check(COPY, {**remote, "source": address})[1]
    parts = {SIGNATURE_KEY: ARCHIVE, "assets": {"a": text_asset("x")}, "hash": "h"}
    assert "archive" in plugin.check(COPY, {**remote, "source": parts})[1]
    for name in ("password", "privateKeyPassword"):
        failures = plugin.check(COMMAND, {"connection": {"host": "h", name: "x"}})[1]
        assert "takes no passwords" in failures["connection"]
    assert "none of" in plugin.check(COMMAND, {"connection": {"host": "h"}, "logging": "loud"})[1]["logging"]
    assert "not found" in failure(plugin.create, "command:local:Command", {"create": "true"})


def copied(plugin: Plugin, host: Host, source: dict[str, str], remote: str | Path, **how: Any) -> str:
    inputs = {"connection": to(host), "source": source, "remotePath": str(remote)}
    return plugin.create(COPY, inputs, **how)[0]


def test_a_file_is_copied(plugin: Plugin, host: Host, tmp_path: Path) -> None:
    source, there = tmp_path / "a 'file'.txt", host.home / "files"
    source.write_text("hello\n")
    copied(plugin, host, file_asset(source), there / "new" / "it's", preview=True)
    assert not there.exists()
    assert copied(plugin, host, file_asset(source), there / "new" / "it's")
    copied(plugin, host, file_asset(source), there / "new")
    source.write_text("again\n")
    copied(plugin, host, file_asset(source), there / "new" / "it's")
    assert contents(there) == {"new": None, "new/it's": "again\n", "new/a 'file'.txt": "hello\n"}
    copied(plugin, host, text_asset("text\n"), there / "deep" / "text")
    assert (there / "deep" / "text").read_text() == "text\n"
    assert "is a directory" in failure(copied, plugin, host, text_asset("text"), there)
    assert "no such file or directory" in failure(copied, plugin, host, file_asset(tmp_path / "none"), there / "x")
    assert "failed to create parent directories" in failure(copied, plugin, host, file_asset(source), "/proc/x/y")


def test_a_folder_is_copied_and_nothing_is_removed(plugin: Plugin, host: Host, folder: Path) -> None:
    there = host.home / "folders"
    copied(plugin, host, archive(folder), there / "named")
    assert contents(there / "named") == {"folder": None, **{f"folder/{name}": it for name, it in IN_FOLDER.items()}}
    copied(plugin, host, archive(f"{folder}/"), there / "deep" / "content")
    assert contents(there / "deep" / "content") == IN_FOLDER
    (there / "deep" / "content" / "old").write_text("kept")
    (folder / "sub" / "x").write_text("3")
    copied(plugin, host, archive(f"{folder}/"), there / "deep" / "content")
    now = {**IN_FOLDER, "sub/x": "3", "sub/link": "3", "old": "kept"}
    assert contents(there / "deep" / "content") == now
    modes = {path.stat().st_mode & 0o777 for path in (there / "deep").rglob("*") if path.is_file()}
    assert modes == {0o644}
    (there / "plain").write_text("a file")
    assert "not a directory" in failure(copied, plugin, host, archive(f"{folder}/"), there / "plain")
    assert failure(copied, plugin, host, archive(folder), there / "plain")
    (there / "blocked").mkdir()
    (there / "blocked" / "sub").write_text("a file")
    assert "not a directory" in failure(copied, plugin, host, archive(f"{folder}/"), there / "blocked")
    assert (there / "blocked" / "sub").read_text() == "a file"


def test_copy_diff_goes_by_the_content(plugin: Plugin, host: Host, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    olds = {"connection": to(host), "source": file_asset(tmp_path / "a"), "remotePath": "/r"}
    assert plugin.diff(COPY, olds, olds) == ({}, [])
    moved = {**olds["source"], "path": "/elsewhere"}
    assert plugin.diff(COPY, olds, {**olds, "source": moved}) == ({}, [])
    assert plugin.diff(COPY, olds, {**olds, "source": text_asset("2")})[0] == {"source": "UPDATE"}
    assert plugin.diff(COPY, olds, {**olds, "source": archive(tmp_path)})[0] == {"source": "UPDATE"}
    assert plugin.diff(COPY, olds, {**olds, "remotePath": "/s"}) == ({"remotePath": "UPDATE"}, [])
    assert plugin.diff(COPY, olds, {**olds, "triggers": [1]}) == ({"triggers": "ADD_REPLACE"}, ["triggers"])


def test_copy_update_copies_what_changed_and_delete_leaves_it(plugin: Plugin, host: Host, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    there = host.home / "updated"
    olds = {"connection": to(host), "source": file_asset(tmp_path / "a"), "remotePath": str(there)}
    plugin.update(COPY, olds, {**olds, "connection": to(host, perDialTimeout=9)})
    assert not there.exists(), "another way to the same host copies nothing"
    plugin.update(COPY, olds, {**olds, "remotePath": f"{there}2"}, preview=True)
    assert not Path(f"{there}2").exists()
    plugin.update(COPY, olds, {**olds, "remotePath": f"{there}2"})
    assert Path(f"{there}2").read_text() == "1"
    (tmp_path / "a").write_text("2")
    plugin.update(COPY, olds, {**olds, "source": file_asset(tmp_path / "a")})
    assert there.read_text() == "2"
    plugin.delete(COPY, olds)
    assert there.exists()
    there.unlink()
    assert plugin.read(COPY, olds, olds)[0] == "one", "what became of it is not asked"
