"""What an account holds against what is known of it, on the real local platform."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.stray import Stray
from sweepstack.billing.unlaunched import Unheld
from sweepstack.channel.ssh import route as ssh_config
from sweepstack.cli.commands import audit as audit_command
from sweepstack.cli.commands.audit import audit, end_stray
from sweepstack.cli.output import Out
from sweepstack.cli.progress import Progress
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import volume_tag
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.operations.strays.accounts import ask, findings_in, without_duplicates
from sweepstack.operations.strays.judge import read_box, with_details
from sweepstack.operations.strays.known_states import KnownStates, read_known
from sweepstack.platforms.registry import load_platform
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.box_context import BoxAt
from tests.conformance.harness_runpod import REGION, Harness
from tests.simulators.machines import require
from tests.unit.entries import box_entry, identity_entry
from tests.unit.loopback import Silent

TAG = "sweepstack-a1b2c3-box-0-g1"
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalPlatform:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    monkeypatch.chdir(tmp_path)
    found = load_platform("local")
    assert isinstance(found, LocalPlatform)
    return found


@pytest.fixture
def box(platform: LocalPlatform) -> BoxRecord:
    return platform.create(BoxRequest(tag=TAG, name="box-0", price_per_hour=0.25), wait=Wait(120))


def state_with(record: BoxRecord, account: str = "") -> StackState:
    known = {"adapter": "local", "native_id": record.native_id, "tag": TAG}
    entry = box_entry(**known, account=account or record.account)
    return StackState(stack="x", boxes=(entry,))


def birth_of(record: BoxRecord, native_id: str | None) -> Birth:
    return Birth(
        box="box-0",
        generation=1,
        tag=TAG,
        platform="local",
        account=record.account,
        native_id=native_id,
        price_per_hour=0.25,
        mounts={},
        begun_at=datetime.now(UTC),
        created_at=None,
    )


def only(platform: LocalPlatform, known: KnownStates) -> Stray:
    """What audit says of the one box, in a checkout without a stack file."""
    (finding,) = with_details(findings_in("local", platform, known), known, Progress)
    return finding


def test_what_a_state_has_is_known(platform: LocalPlatform, box: BoxRecord) -> None:
    finding = only(platform, KnownStates(states={"x": state_with(box)}))
    assert (finding.standing, finding.whose, finding.next) == ("known", ("x",), "")
    assert not finding.bills_unknown


def test_a_box_that_stands_still_against_its_state_leads_to_what_stopped_it(
    platform: LocalPlatform, box: BoxRecord
) -> None:
    """A job can stop its own box with the key that the vendor puts there; where a state asked for the stop, it is
    nothing to be asked about."""
    platform.stop(box.native_id, box.account)
    state = state_with(box)
    asked = replace(state, boxes=(state.boxes[0].model_copy(update={"want": "stopped"}),))
    done = replace(state, boxes=(state.boxes[0].model_copy(update={"when_done": "stop"}),))
    assert only(platform, KnownStates(states={"x": asked})).next == ""
    assert only(platform, KnownStates(states={"x": done})).next == ""
    finding = only(platform, KnownStates(states={"x": state}))
    assert (finding.standing, finding.phase) == ("known", "stopped")
    assert finding.next.startswith("sweepctl status --stack x    (box-0 stands still, and is wanted running")


@pytest.mark.parametrize("native_id", [True, False])
def test_what_only_the_records_have_is_adopted_by_an_up(
    platform: LocalPlatform, box: BoxRecord, native_id: bool
) -> None:
    """The answer to the create may have been lost: then the record has the tag alone."""
    birth = birth_of(box, box.native_id if native_id else None)
    finding = only(platform, KnownStates(states={"x": StackState(stack="x")}, births={"x": [birth]}))
    assert (finding.standing, finding.whose) == ("recorded", ("x",))
    assert finding.next == "pulumi up --stack x    (adopts it, once Pulumi.x.yaml is back)"
    assert finding.bills_unknown
    lost = only(platform, KnownStates(births={"x": [birth]}))
    assert lost.next.startswith("pulumi stack init x && pulumi up --stack x    (adopts it")


def test_what_nobody_has_is_unknown_and_its_price_is_said(platform: LocalPlatform, box: BoxRecord) -> None:
    finding = only(platform, KnownStates(births={"y": []}))
    assert (finding.standing, finding.price_per_hour) == ("unknown", 0.25)
    assert (finding.holds, finding.owner) == ("no cell was ever given to it", "not known")
    assert (finding.next, finding.give_up) == ("", "")


def test_a_box_of_a_state_that_is_gone_is_proved_so(platform: LocalPlatform, box: BoxRecord) -> None:
    known = KnownStates(states={"x": state_with(box)})
    platform.destroy(box.native_id, box.account)
    assert only(platform, known).standing == "vanished"


def test_a_box_of_another_account_is_not_called_gone(platform: LocalPlatform, box: BoxRecord) -> None:
    known = KnownStates(states={"x": state_with(box, account="other/zzzzzzzzzz")})
    platform.destroy(box.native_id, box.account)
    assert only(platform, known).standing == "foreign"


class World:
    """An audit whose states are those given; everything else is real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known: KnownStates) -> None:
        monkeypatch.setattr(audit_command, "read_known", lambda root: known)


@pytest.mark.usefixtures("no_rental_platform")
def test_exit_codes(
    platform: LocalPlatform,
    box: BoxRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    World(monkeypatch, KnownStates(states={"x": state_with(box)}))
    assert audit(tmp_path, Out(as_json=False)) == 0
    assert "everything that was found is known" in capsys.readouterr().out
    birth = birth_of(box, box.native_id).model_copy(update={"launch_by": datetime.now(UTC)})
    late = ("x", Unheld(birth, datetime.now(UTC)))
    World(monkeypatch, KnownStates(states={"x": state_with(box)}, unheld=[late]))
    assert audit(tmp_path, Out(as_json=False)) == 0
    assert f"late {late[1].words('x')}" in " ".join(capsys.readouterr().out.split()), "as after an up that was killed"
    World(monkeypatch, KnownStates(states={"x": state_with(box)}, problems=["the state of y is not known"]))
    assert audit(tmp_path, Out(as_json=False)) == 2
    theirs = state_with(replace(box, native_id="far"))
    theirs = replace(theirs, boxes=tuple(one.model_copy(update={"adapter": "some_api"}) for one in theirs.boxes))
    World(monkeypatch, KnownStates(states={"x": state_with(box), "y": theirs}))
    capsys.readouterr()
    assert audit(tmp_path, Out(as_json=False)) == 2, "its folder was taken out, and what it rented may bill"
    said = " ".join("".join(capsys.readouterr()).split())
    assert "some_api could not be asked: 'some_api' needs the extension `some_api`, which is not installed here" in said
    World(monkeypatch, KnownStates())
    assert audit(tmp_path, Out(as_json=False)) == 1
    said = capsys.readouterr().out
    assert "at least $0.25/h" in said
    assert "audit --end" not in said
    assert platform.get(box.native_id, box.account).phase is Phase.RUNNING


def test_a_volume_that_its_stack_s_state_lost_is_adopted_and_not_ended_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its tag it is known whose it is; what sweeps left on it is asked after by that stack's check alone."""
    harness = Harness(tmp_path, monkeypatch, machines=False)
    try:
        platform = harness.connect()
        ours = platform.ensure_volume(volume_tag("keeperxxxx", "abl"), "abl", size_gb=10, region=REGION)
        theirs = platform.ensure_volume(volume_tag("otherxxxxx", "abl"), "abl", size_gb=10, region=REGION)
        identity = identity_entry(identity="keeperxxxx", stack="keep")
        known = KnownStates(states={"keep": StackState("keep", identity=identity)})
        found = {finding.native_id: finding for finding in findings_in("runpod", platform, known)}
        assert (found[ours.native_id].standing, found[ours.native_id].whose) == ("recorded", ("keep",))
        assert found[ours.native_id].bills_unknown
        assert found[ours.native_id].next.startswith("pulumi up --stack keep    (adopts it")
        assert found[theirs.native_id].next == ""
        monkeypatch.setattr(audit_command, "read_known", lambda _: known)
        with pytest.raises(No, match="known to keep") as refused:
            end_stray(tmp_path, f"runpod:{ours.native_id}", Out(as_json=False), typed=ours.native_id)
        assert refused.value.next == [found[ours.native_id].next]
        assert platform.get_volume(ours.native_id) is not None
        what, typed = f"runpod:{theirs.native_id}", theirs.native_id
        with pytest.raises(No, match=r"REFUSED\. Nothing was ended: volume"):
            end_stray(tmp_path, what, Out(as_json=False), typed=typed)
        mounting = platform.create(harness.request(TAG, mounts={"mnt/durable": typed}), wait=Wait(60))
        with pytest.raises(No, match=f"the box {mounting.native_id} mounts it"):
            end_stray(tmp_path, what, Out(as_json=False), typed=typed, abandon=True, reason="a test")
        platform.destroy(mounting.native_id, mounting.account)
        assert platform.get_volume(typed) is not None
        assert end_stray(tmp_path, what, Out(as_json=False), typed=typed, abandon=True, reason="a test") == 0
        assert platform.get_volume(typed) is None
    finally:
        harness.close()


def test_hosts_are_asked_side_by_side_and_each_is_named_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(key))
    with closing(Silent(3)) as hosts:
        known = KnownStates()
        assert ask([*hosts.adapters, "local"], known) == (["local"], [])
    assert hosts.together, "one host's silence was waited for before the next one was asked"
    assert [problem.split(" could not be asked: ")[0] for problem in known.problems] == hosts.adapters


def test_a_host_that_two_addresses_lead_to_is_listed_once() -> None:
    """By the one that a state knows, where one does. On a rental platform the same id may be another account's."""

    def found(platform: str, standing: Any) -> Stray:
        return Stray("box", platform, "b-1", TAG, standing=standing, phase="running", price_per_hour=0.5)

    one, other = found("ssh:a:22", "unknown"), found("ssh:b:22", "known")
    assert without_duplicates([one, other]) == [other]
    assert without_duplicates([other, one]) == [other]
    assert without_duplicates([found("local", "unknown"), found("runpod", "unknown")]) == [
        found("local", "unknown"),
        found("runpod", "unknown"),
    ]


def test_hosts_are_known_by_the_stack_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `pulumi stack rm --force` no state names them."""
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    monkeypatch.setattr("sweepstack.operations.strays.known_states.list_stacks", lambda *_, **__: [])
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    sweep = {"boxes": {"a": {"host": "root@192.0.2.7:22"}, "b": {"want": "gone"}}, "pull_to": "results"}
    (tmp_path / "Pulumi.x.yaml").write_text(json.dumps({"config": {"sweepstack:sweep": sweep}}))
    assert read_known(tmp_path).hosts() == [], "nothing was ever brought up with it: an example asks no host"
    EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/results", "abcdefghjk", "p", "x")
    known = read_known(tmp_path)
    assert known.hosts() == ["ssh:root@192.0.2.7:22"]
    assert known.problems == []


def test_a_duplicate_of_a_rented_box_is_read_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rented D1b: a copy made in the console, or a second rental after a list that lagged. No `up` adopts it."""
    require()
    harness = Harness(tmp_path, monkeypatch, machines=True)
    try:
        platform = harness.connect()
        tag = "sweepstack-abcdefghjk-box-0-g1"
        first = platform.create(harness.request(tag), wait=Wait(60))
        twin = str(harness.sim.act("duplicate", {"id": first.native_id}))

        def lets_us_in() -> bool:
            return read_box(BoxAt("runpod", twin, first.account)).seen.journal is not None

        assert Wait(60).until(lets_us_in, "the copy to let us in") == ""
        store = EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/results", "abcdefghjk", "p", "x")
        birth = birth_of(first, first.native_id).model_copy(update={"platform": "runpod", "tag": tag})
        known = KnownStates(births={"x": [birth]}, stores={"x": store})
        monkeypatch.setattr(audit_command, "read_known", lambda _: known)
        (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
        found = with_details(findings_in("runpod", platform, known), known, Progress)
        by_id = {finding.native_id: finding for finding in found}
        assert (by_id[first.native_id].standing, by_id[twin].standing) == ("recorded", "duplicate")
        assert by_id[twin].next == f"sweepctl audit --end runpod:{twin}"
        assert end_stray(tmp_path, f"runpod:{twin}", Out(as_json=True), typed=twin) == 0
        assert harness.rentals() == {first.native_id}
    finally:
        harness.close()
