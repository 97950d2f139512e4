"""The provider's configuration: keys come in as secrets, stay with their account, and replace nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pulumi  # noqa: F401 - before sweepstack.provider.grpc_stubs, which else leaves an empty shell for other tests
import pytest

from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.platforms.common import keys, redact
from sweepstack.platforms.registry import load_platform
from sweepstack.provider.configuration import ACCOUNTS
from sweepstack.provider.grpc_stubs import provider_pb2
from sweepstack.provider.session import Session
from sweepstack.provider.wire import UNKNOWN, Secret, to_python, to_struct
from tests.conformance.harness_runpod import REGION, Harness
from tests.simulators.runpod import KEY, OTHER_KEY
from tests.unit.provider import test_host
from tests.unit.provider.support import STACK

stub, session = test_host.stub, test_host.session
OPTION, NEW_KEY = "runpodApiKey", "rpa_ROTATED0000000000000000000000000000"


@pytest.fixture
def runpod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """Accounts `ann` and `bob`, and no key in the environment."""
    harness = Harness(tmp_path, monkeypatch, machines=False)
    monkeypatch.delenv("RUNPOD_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    yield harness
    keys.look_in(None)
    harness.close()


def urn(name: str = "default") -> str:
    return f"urn:pulumi:{STACK}::project::pulumi:providers:sweepstack::{name}"


def check(stub: Any, news: Any, olds: Any = None, name: str = "default") -> tuple[dict[str, Any], list[str]]:
    """What the engine keeps, with secrets as such; and the refusals."""
    request = provider_pb2.CheckRequest(urn=urn(name), news=to_struct(news), olds=to_struct(olds or {}))
    answer = stub.CheckConfig(request)
    assert not [failure.property for failure in answer.failures if failure.property], "the engine would print its value"
    return to_python(answer.inputs, secrets=True), [" ".join(failure.reason.split()) for failure in answer.failures]


def kept(inputs: dict[str, Any]) -> dict[str, Any]:
    """These inputs as the engine sends them the next time: without the wrapping of secrets."""
    return {name: value.value if isinstance(value, Secret) else value for name, value in inputs.items()}


def rotate(harness: Harness, account: str, key: str) -> None:
    """The account has this key alone from now on."""
    with harness.sim.lock:
        next(one for one in harness.sim.accounts.values() if one.id == account).key = key


def test_a_key_is_a_secret_with_its_account_and_what_is_no_key_passes(stub: Any, runpod: Harness) -> None:
    sweep = json.dumps({"job": {"run": "x"}})
    inputs, refused = check(stub, {"sweep": sweep, "version": "0.1.0", OPTION: KEY})
    assert refused == []
    assert isinstance(inputs[OPTION], Secret)
    ann = inputs[ACCOUNTS]["runpod"]
    assert kept(inputs) == {"sweep": sweep, "version": "0.1.0", OPTION: KEY, ACCOUNTS: {"runpod": ann}}
    assert KEY not in redact.redact(f"the key {KEY}")
    asked = len(runpod.sim.calls)
    again, refused = check(stub, {"sweep": "another", "version": "0.1.0", OPTION: KEY}, kept(inputs))
    assert (again[ACCOUNTS], refused) == ({"runpod": ann}, [])
    assert len(runpod.sim.calls) == asked, "the same key costs no request"


def test_a_key_of_another_account_is_refused_and_a_rotated_one_is_not(stub: Any, runpod: Harness) -> None:
    before = kept(check(stub, {OPTION: KEY})[0])
    _, refused = check(stub, {OPTION: OTHER_KEY}, before)
    assert len(refused) == 1
    assert f"sweepstack:{OPTION} is a key of the RunPod account" in refused[0]
    assert f"has worked with {before[ACCOUNTS]['runpod']}: nothing was changed" in refused[0]
    assert KEY not in refused[0]
    assert OTHER_KEY not in refused[0]
    rotate(runpod, before[ACCOUNTS]["runpod"], NEW_KEY)
    after, refused = check(stub, {OPTION: NEW_KEY}, before)
    assert (after[ACCOUNTS], refused) == (before[ACCOUNTS], [])
    (refusal,) = check(stub, {OPTION: "rpa_withdrawn"}, before)[1]
    assert f"whose key sweepstack:{OPTION} is can't be told, and nothing was changed: " in refusal
    assert f"check sweepstack:{OPTION}" in refusal


def test_a_platform_that_does_not_answer_is_told_once_and_with_the_command_to_type_again(
    stub: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.01")
    monkeypatch.setenv("RUNPOD_API_BASE_URL", "http://127.0.0.1:9")
    typed = [sys.executable, "-c", "import time; time.sleep(60)", "destroy", "--yes", "--stack", "t"]
    with subprocess.Popen(typed) as engine:
        try:
            monkeypatch.setattr("sweepstack.provider.next_command.os.getppid", lambda: engine.pid)
            ((refusal,)) = check(stub, {OPTION: KEY})[1]
        finally:
            engine.kill()
    assert refusal.count("nothing was changed") == 1, refusal
    assert refusal.endswith("Next: pulumi destroy --stack t"), refusal


def test_the_environments_key_takes_over_where_it_is_of_the_same_account(
    stub: Any, runpod: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept(check(stub, {OPTION: KEY})[0])
    keys.look_in(None)  # the next command's process
    assert check(stub, {}, before) == ({}, [])
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    assert check(stub, {}, before) == ({}, [])
    monkeypatch.setenv("RUNPOD_API_KEY", OTHER_KEY)
    assert len(check(stub, {}, before)[1]) == 1


@pytest.mark.parametrize(
    ("provider", "name", "refused"),
    [
        ("default", "runpodApikey", True),
        ("default_0_1_0", "RUNPOD_API_KEY", True),
        ("default", "sweep", False),
        ("default", "datasets", False),
        ("acme", "datasets", True),
        ("acme", "version", False),
        ("acme", OPTION, False),
    ],
)
def test_names(stub: Any, runpod: Harness, provider: str, name: str, refused: bool) -> None:
    found = check(stub, {name: KEY}, name=provider)[1]
    assert [f"sweepstack:{name} is no key of the provider" in one for one in found] == [True] * refused


def test_a_key_that_a_preview_does_not_know_keeps_the_account(stub: Any, runpod: Harness) -> None:
    before = kept(check(stub, {OPTION: KEY})[0])
    inputs, refused = check(stub, {OPTION: UNKNOWN}, before)
    assert (inputs, refused) == ({OPTION: UNKNOWN, ACCOUNTS: before[ACCOUNTS]}, [])


def test_no_difference_is_a_replacement(stub: Any) -> None:
    def diff(old: Any, new: Any) -> Any:
        return stub.DiffConfig(provider_pb2.DiffRequest(urn=urn(), old_inputs=to_struct(old), news=to_struct(new)))

    known: dict[str, Any] = {OPTION: KEY, "sweep": "a", ACCOUNTS: {"runpod": "ann"}}
    new: Any
    for new in (known, known | {"sweep": "b"}, {OPTION: KEY}):
        assert diff(known, new).changes == provider_pb2.DiffResponse.DIFF_NONE
    for new in ({OPTION: OTHER_KEY}, {}, {OPTION: UNKNOWN}):
        answer = diff(known, new)
        assert (answer.changes, list(answer.diffs)) == (provider_pb2.DiffResponse.DIFF_SOME, [OPTION])
        assert not answer.replaces
        assert not answer.deleteBeforeReplace


def test_what_is_configured_counts_before_the_environment(
    stub: Any, session: Session, runpod: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", OTHER_KEY)
    platform = load_platform("runpod")
    bob = platform.account()
    stub.Configure(provider_pb2.ConfigureRequest(args=to_struct({"sweep": "{}", OPTION: Secret(KEY)})))
    assert platform.account() != bob
    keys.look_in(None)
    stub.Configure(provider_pb2.ConfigureRequest(args=to_struct({OPTION: ""})))
    assert platform.account() == bob


def test_a_resource_stays_with_its_account(stub: Any, runpod: Harness) -> None:
    """The engine takes another provider for no change of a resource; to the other account's key it would be gone."""
    bobs = kept(check(stub, {OPTION: OTHER_KEY}, name="bob")[0])
    anns = kept(check(stub, {OPTION: KEY}, name="ann")[0])
    with_key = {name: Secret(value) if name == OPTION else value for name, value in bobs.items()}
    inputs = {"adapter": "runpod", "name": "store"}
    volume = to_struct(inputs | {"account": anns[ACCOUNTS]["runpod"]})
    request = provider_pb2.DiffRequest(
        urn=f"urn:pulumi:{STACK}::project::sweepstack:index:Volume::store",
        olds=volume,
        old_inputs=to_struct(inputs),
        news=to_struct(inputs),
    )
    stub.Configure(provider_pb2.ConfigureRequest(args=to_struct({})))
    assert stub.Diff(request).changes != provider_pb2.DiffResponse.DIFF_UNKNOWN
    stub.Configure(provider_pb2.ConfigureRequest(args=to_struct(with_key)))
    with pytest.raises(grpc.RpcError) as raised:
        stub.Diff(request)
    assert "Volume store: it is of the RunPod account" in " ".join(str(raised.value.details()).split())


def test_a_key_for_one_account_is_asked_for_by_its_account(runpod: Harness) -> None:
    """A command looks at boxes of several accounts at once."""
    asked: list[tuple[str, str]] = []
    platform = load_platform("runpod")
    bob = next(one.id for one in runpod.sim.accounts.values() if one.key == OTHER_KEY)

    def stacks(key: keys.Key, account: str) -> str:
        asked.append((key.option, account))
        return {(OPTION, ""): KEY, (OPTION, bob): OTHER_KEY}.get((key.option, account), "")

    keys.look_in(stacks)
    assert isinstance(platform, HasVolumes)
    mine = platform.ensure_volume("ours-a", "a", size_gb=10, region=REGION)
    assert mine.account != bob
    assert platform.find_by_tag("ours-b", bob) is None
    assert platform.find_by_tag("ours-b", mine.account) is None
    assert asked == [(OPTION, ""), (OPTION, bob), (OPTION, mine.account)]


def test_every_key_is_in_the_schema() -> None:
    from sweepstack.provider.schema import schema_json

    schema = json.loads(schema_json())
    options = {key.option: key.variable for key in keys.declared().values()}
    assert len(options) == len(keys.declared())
    for place in (schema["config"]["variables"], schema["provider"]["inputProperties"]):
        assert {name: one["defaultInfo"]["environment"] for name, one in place.items()} == {
            option: [variable] for option, variable in options.items()
        }
        assert all(one["secret"] is True and one["description"] for one in place.values())
