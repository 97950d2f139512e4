"""A box whose host gets another address: an update in place, proved first; another machine there is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.channel.ssh import route as ssh_config
from sweepstack.core.resources import BoxState
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import FolderLost, SweepstackError, Unreachable, WrongAccount
from sweepstack.provider.dispatch import diff
from sweepstack.provider.resources import host_address_change
from sweepstack.provider.resources.base import Decision
from tests.unit.provider.hosts import HostSweep
from tests.unit.provider.support import BOX, GATE, QUEUE, approval_for
from tests.unit.provider.test_box_end import delete


def move(hosts: HostSweep) -> None:
    host = hosts.hosts["box-0"]
    host.stop()
    host.move()
    host.start()


def test_the_box_is_followed_and_its_cells_run_on(hosts: HostSweep) -> None:
    hosts.hold("a", "b")
    box = hosts.box()
    assert box.host_keys
    queue, gate = hosts.queue(box), hosts.gate(box)
    hosts.settled(box, "a", "b")
    before = hosts.workers(box)
    move(hosts)
    inputs, refused = hosts.checked(box)
    assert refused == []
    assert BOX.changes(box, inputs)["adapter"] is Decision.UPDATE
    moved = hosts.updated(box, inputs)
    assert (moved.native_id, moved.account) == (box.native_id, box.account)
    assert moved.adapter == hosts.adapter("box-0") != box.adapter
    assert hosts.born().platform == moved.adapter, "the records find it, too, once the state is lost"
    hosts.followed(moved, queue, gate)
    assert hosts.workers(moved) == before, "nothing was restarted"
    hosts.release()
    hosts.drained(moved)
    assert sorted(hosts.started()) == ["a a", "b b"]
    delete(hosts, moved.model_copy(update={"approval": approval_for(moved, receipt=hosts.verified(moved))}))
    assert hosts.boxes_on("box-0") == []


def test_another_machine_is_refused_in_the_preview_and_by_the_update(hosts: HostSweep) -> None:
    box = hosts.box()
    move(hosts)
    hosts.hosts["box-0"].new_key()
    inputs, refused = hosts.checked(box)
    assert len(refused) == 1
    assert "another machine answers" in refused[0]
    with pytest.raises(SweepstackError, match=r"still the one at (?s:.*)another machine answers"):
        hosts.updated(box, inputs)
    assert hosts.born().platform == box.adapter


def test_another_account_is_refused_in_the_preview(hosts: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another namespace of a cluster is."""
    box = hosts.box()
    monkeypatch.setattr(host_address_change, "moves", lambda *_: True)
    for error, found in ((WrongAccount("of b"), ["of b"]), (FolderLost("away"), []), (Unreachable("silent"), [])):

        def prove(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(host_address_change, "prove_same", prove)
        assert hosts.checked(box)[1] == found


def test_an_address_that_nobody_answers_at_stops_the_update_and_not_the_preview(hosts: HostSweep) -> None:
    box = hosts.box()
    move(hosts)
    hosts.hosts["box-0"].stop()
    inputs, refused = hosts.checked(box)
    assert refused == []
    assert "can't be told now" in hosts.said.warnings
    with pytest.raises(SweepstackError, match="can't be reached"):
        hosts.updated(box, inputs)


def test_a_box_that_the_state_lost_is_adopted_at_its_new_address(hosts: HostSweep) -> None:
    box = hosts.box()
    move(hosts)
    again = hosts.box()
    assert (again.native_id, again.generation) == (box.native_id, 1)
    assert hosts.boxes_on("box-0") == [box.native_id]


def test_only_the_address_changes_in_place(hosts: HostSweep) -> None:
    one, other = "ssh:root@h:1", "ssh:root@h:2"
    for handler in (BOX, QUEUE, GATE):
        op = hosts.op(handler.token.rsplit(":", 1)[-1])
        assert diff(op, {"adapter": one}, {}, {"adapter": other}).replaces == ()
        assert diff(op, {"adapter": one}, {}, {"adapter": "local"}).replaces == ("adapter",)
        assert diff(op, {"adapter": "local"}, {}, {"adapter": other}).replaces == ("adapter",)


def test_a_name_of_the_ssh_configuration_is_written_out(
    hosts: HostSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, host = tmp_path / "ssh_config", hosts.hosts["box-0"]
    config.write_text(f"Host gpu1\nHostName 127.0.0.1\nPort {host.port}\nUser {host.user}\n")
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, str(config))
    inputs = BOX.check(hosts.op(), None, hosts.box_inputs(adapter="ssh:gpu1")).inputs
    assert inputs.adapter == f"ssh:gpu1={host.address}"
    box = BOX.create(hosts.op(), inputs)[1]
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    unchanged, refused = hosts.checked(box, adapter="ssh:gpu1")
    assert (unchanged.adapter, refused) == (box.adapter, [])
    assert hosts.channel(_state(box)).size(box_layout.JOURNAL) is None


def _state(box: BoxState) -> BoxState:
    """As it comes back from the engine."""
    return BoxState.model_validate(box.model_dump(mode="json"))
