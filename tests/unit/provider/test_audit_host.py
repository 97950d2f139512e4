"""`sweepctl audit` and hosts, over a real sshd: found without a state, listed once, and a rented one bills on."""

from __future__ import annotations

import json

import pytest

from sweepstack.cli.commands import audit as audit_command
from sweepstack.cli.commands.audit import end_stray
from sweepstack.cli.output import Out
from sweepstack.cli.progress import Progress
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from sweepstack.operations.strays.accounts import findings_in, without_duplicates
from sweepstack.operations.strays.judge import with_details
from sweepstack.operations.strays.known_states import KnownStates, read_known
from sweepstack.platforms.registry import load_platform
from sweepstack.teardown.ownership import who
from tests.unit.provider.hosts import HostSweep


def test_a_host_is_asked_whose_stack_was_removed_and_listed_once(
    hosts: HostSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state names it, and a second stack file has another address of it."""
    box = hosts.box()
    monkeypatch.setattr("sweepstack.operations.strays.known_states.list_stacks", lambda *_, **__: [])
    address = hosts.hosts["box-0"].address
    assert "127.0.0.1" in address
    root, marker = hosts.project, hosts.store.marker
    root.mkdir(exist_ok=True)
    (root / "Pulumi.yaml").write_text(f"name: {marker.project}\nruntime: python\n")
    for name, host in ((marker.stack, address), ("other", address.replace("127.0.0.1", "localhost"))):
        sweep = {"boxes": {"box-0": {"host": host}}, "pull_to": str(hosts.store.root)}
        (root / f"Pulumi.{name}.yaml").write_text(json.dumps({"config": {"sweepstack:sweep": sweep}}))
    known = read_known(root)
    assert known.problems == []
    assert known.hosts() == [f"ssh:{address}", f"ssh:{address.replace('127.0.0.1', 'localhost')}"]
    twice = [found for adapter in known.hosts() for found in findings_in(adapter, load_platform(adapter), known)]
    assert [found.native_id for found in twice] == [box.native_id] * 2
    (found,) = with_details(without_duplicates(twice), known, Progress)
    assert (found.standing, found.whose) == ("recorded", (marker.stack,))
    assert found.owner.startswith(f"{who()}, for {marker.project}/{marker.stack}")
    assert found.next == f"pulumi stack init {marker.stack} && pulumi up --stack {marker.stack}    (adopts it)"


@pytest.mark.parametrize("word", ["as it is made now", "made by an older version"])
def test_a_rented_host_is_emptied_and_bills_on(hosts: HostSweep, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """That nothing is left there is no proof that its bill has ended: the answer is no, and it comes at once."""
    adapter = hosts.adapter("box-0")
    platform = load_platform(adapter)
    request = BoxRequest("sweepstack-zzzzzzzzzz-b-g1", "b", 0.5, {}, {}, rented=word == "as it is made now")
    made = platform.create(request, wait=Wait(60))
    monkeypatch.setattr(audit_command, "read_known", lambda _: KnownStates())
    (hosts.project / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    with pytest.raises(No, match="is not proved: nothing of it is left on its host, which bills on"):
        end_stray(
            hosts.project,
            f"{adapter}:{made.native_id}",
            Out(as_json=True),
            typed=made.native_id,
            abandon=True,
            reason="a test",
        )
    left = platform.get(made.native_id, made.account).phase
    assert left is (Phase.ENDING if word == "as it is made now" else Phase.GONE), "its host may know no better"
