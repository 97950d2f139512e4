"""A host's set-up, as the program asks the engine for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.host_setup import Step, facts, preflight
from components.platforms.ssh import COMMAND, NO_KEY, pinned, set_up, steps_for
from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.pinned_keys import Pin, fingerprint
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import load_profiles
from sweepstack.profiles.resolve import resolve
from sweepstack.provider.wire import to_python
from tests.unit.config.helpers import GOOD, write
from tests.unit.config.test_program import REPOSITORY, requests

HOST = "ann@192.0.2.7:2222/data"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPinned"
COMMAND_TYPE = "command:remote:Command"


def hosts(host: str = HOST) -> str:
    boxes = f'{{box-0: {{want: running, host: "{host}"}}}}'
    text = GOOD.replace("{box-0: {want: running}}", boxes).replace("[local]", "[generic-ssh]")
    return text.replace("{local: {price_per_hour: 0.12}}", "{generic-ssh: {price_per_hour: 0}}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With no host key pinned."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "examples" / "digits").mkdir(parents=True)
    (tmp_path / "examples" / "digits" / "train.py").write_text("print(1)\n")
    return tmp_path


def asked(root: Path, text: str) -> tuple[Any, dict[str, Any]]:
    """The request for the command, and its inputs."""
    request = requests(root, text)[COMMAND_TYPE, "box-0"]
    return request, to_python(request.object)


def test_a_host_is_set_up_between_its_box_and_its_queue(project: Path) -> None:
    endpoint = HostAddress.parse(HOST).endpoint
    Pin(endpoint.known_as, endpoint.start).keep([KEY], endpoint)
    made = requests(project, hosts())
    command, queue = made[COMMAND_TYPE, "box-0"], made["sweepstack:index:Queue", "box-0"]
    assert any("sweepstack:index:Box::box-0" in urn for urn in command.dependencies)
    assert any(f"{COMMAND_TYPE}::box-0" in urn for urn in queue.dependencies)
    given = to_python(command.object)
    assert given["create"] == COMMAND
    assert given["connection"] == {
        "host": "192.0.2.7",
        "port": 2222,
        "user": "ann",
        "hostKey": KEY,
        "dialErrorLimit": 10,
        "perDialTimeout": 15,
    }
    assert "SWEEPSTACK_BOX=id-box-0\n" in given["stdin"], "another box is another text"
    assert "SWEEPSTACK_ROOT=/data\n" in given["stdin"]
    assert "preflight" in given["stdin"]


def test_nothing_of_it_can_lose_data_or_tell_a_secret(project: Path) -> None:
    request, given = asked(project, hosts())
    assert set(given) == {"addPreviousOutputInEnv", "connection", "create", "stdin"}
    assert given["addPreviousOutputInEnv"] is False
    assert not {"privateKey", "password", "agentSocketPath"} & set(given["connection"])
    assert not request.deleteBeforeReplace


def test_without_a_pinned_key_no_host_is_the_right_one(project: Path) -> None:
    assert asked(project, hosts())[1]["connection"]["hostKey"] == NO_KEY


def test_a_key_that_is_not_on_record_is_nobody_s(project: Path) -> None:
    endpoint = HostAddress.parse(HOST).endpoint
    Pin(endpoint.known_as, endpoint.start).keep([KEY], endpoint)
    assert pinned(endpoint, [fingerprint(KEY)]) == KEY
    assert pinned(endpoint, ["ED25519 SHA256:other"]) == NO_KEY


def test_one_other_host_is_gone_through(project: Path) -> None:
    door = SshEndpoint("door.lab", 23, "ann", known_as="ann@door.lab:23")
    Pin(door.known_as, door.start).keep([KEY], door)
    given = asked(project, hosts("ann@door.lab:23,bob@10.0.0.5:2222"))[1]["connection"]
    assert (given["host"], given["port"], given["user"]) == ("10.0.0.5", 2222, "bob")
    dials = {"dialErrorLimit": 10, "perDialTimeout": 15}
    assert given["proxy"] == {"host": "door.lab", "port": 23, "user": "ann", "hostKey": KEY, **dials}


@pytest.mark.parametrize("host", ["gpu3", "gpu3/data", "a@one:22,b@two:22,c@three:22"])
def test_where_the_plugin_can_t_go_a_line_says_so(project: Path, caplog: pytest.LogCaptureFixture, host: str) -> None:
    caplog.set_level("INFO")
    assert COMMAND_TYPE not in {kind for kind, _ in requests(project, hosts(host))}
    assert "not set up by a command" in caplog.text


def test_steps_are_told_where_boxes_lie(project: Path) -> None:
    """A host whose data tier has a place of its own: its boxes lie there, whatever the address leaves open."""
    text = hosts("ann@192.0.2.7:22").replace(
        "price_per_hour: 0}", "price_per_hour: 0, places: {data: /big, durable: /fs}}"
    )
    assert "SWEEPSTACK_ROOT=/big/sweepstack\n" in asked(project, text)[1]["stdin"]
    assert "SWEEPSTACK_ROOT=''\n" in asked(project, hosts("ann@192.0.2.7:22"))[1]["stdin"]


def test_what_has_to_be_done_there_is_not_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = (preflight(), Step("mount", "true", None, "mounting"))
    monkeypatch.setattr("components.platforms.ssh.steps_for", lambda plan: needed)
    with pytest.raises(ConfigError, match=r"boxes\.box-0\.host: gpu3 can't be set up .* Write its address in full"):
        requests(project, hosts("gpu3"))


def test_what_needs_no_set_up_has_none(project: Path) -> None:
    made = requests(project, GOOD)
    assert COMMAND_TYPE not in {kind for kind, _ in made}
    assert not any("command" in urn for urn in made["sweepstack:index:Queue", "box-0"].dependencies)
    write(project, hosts())
    config = StackConfig.load(project, "x")
    plan = resolve(config, load_profiles(config.candidates))
    stopped = replace(plan.boxes[0], want="stopped")
    assert set_up(plan, stopped, None, None) is None  # type: ignore[arg-type]


def test_the_package_is_imported_only_for_hosts() -> None:
    look = "import components.sweep, sys; print('pulumi_command' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", look], cwd=REPOSITORY, text=True)
    assert said == "False\n"


def test_facts_are_those_of_the_steps() -> None:
    assert facts("python=3.11.7\nnoise\n a=b \nB=c\n") == {"python": "3.11.7", "a": "b"}


def test_a_host_with_places_is_looked_at_where_its_boxes_lie(tmp_path: Path) -> None:
    """The root of its script is that of the box's adapter, and the looks at tier and network come before its queue."""
    text = hosts("ann@192.0.2.7:2222").replace("[generic-ssh]", "[autodl]").replace("{generic-ssh: {p", "{autodl: {p")
    write(tmp_path, text)
    plan = resolve(StackConfig.load(tmp_path, "x"), load_profiles(["autodl"]))
    assert plan.adapter_of(plan.boxes[0]).endswith(f":2222{plan.root}")
    assert [step.name for step in steps_for(plan)] == ["preflight", "tiers", "network"]
