"""What an account holds against what is known of it, on the real local platform."""

from __future__ import annotations

import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from provider.platforms.base import BoxRecord, BoxRequest, Phase, Wait
from provider.platforms.local import LocalPlatform
from provider.platforms.registry import load_platform
from sweep.channel import ssh_config
from sweep.cli import audit_end
from sweep.cli.audit import Finding, Known, ask, audit, look
from sweep.cli.output import No, Out
from sweep.errors import SweepstackError
from sweep.model import Birth
from sweep.onbox import volume_tag
from sweep.state import BoxEntry, IdentityEntry, StackState, TeardownEntry
from tests.conformance.harness_runpod import REGION, Harness
from tests.unit.loopback import Silent

TAG = "sweepstack-a1b2c3-box-0-g1"
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalPlatform:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    found = load_platform("local")
    assert isinstance(found, LocalPlatform)
    return found


@pytest.fixture
def box(platform: LocalPlatform) -> BoxRecord:
    return platform.create(BoxRequest(tag=TAG, name="box-0", price_per_hour=0.25), wait=Wait(120))


def state_with(record: BoxRecord, account: str = "") -> StackState:
    entry = BoxEntry(
        urn="urn:pulumi:x::sweepstack::sweepstack:index:Box::box-0",
        identity="a1b2c3",
        evidence="file://nowhere/x",
        adapter="local",
        name="box-0",
        native_id=record.native_id,
        account=account or record.account,
        generation=1,
        tag=TAG,
        roster_digest=DIGEST,
        teardown=TeardownEntry(verb="destroy", kills=(), keeps=()),
    )
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


def only(platform: LocalPlatform, known: Known) -> Finding:
    (finding,) = look("local", platform, known)
    return finding


def test_what_a_state_has_is_known(platform: LocalPlatform, box: BoxRecord) -> None:
    finding = only(platform, Known(states={"x": state_with(box)}))
    assert (finding.standing, finding.whose, finding.next) == ("known", ("x",), "")
    assert not finding.bills_unknown


@pytest.mark.parametrize("native_id", [True, False])
def test_what_only_the_records_have_is_adopted_by_an_up(
    platform: LocalPlatform, box: BoxRecord, native_id: bool
) -> None:
    """The answer to the create may have been lost: then the record has the tag alone."""
    birth = birth_of(box, box.native_id if native_id else None)
    finding = only(platform, Known(states={"x": StackState(stack="x")}, births={"x": [birth]}))
    assert (finding.standing, finding.whose) == ("recorded", ("x",))
    assert finding.next.startswith("pulumi up --stack x")
    assert finding.bills_unknown


def test_what_nobody_has_is_unknown_and_its_price_is_said(platform: LocalPlatform, box: BoxRecord) -> None:
    finding = only(platform, Known(births={"y": []}))
    assert (finding.standing, finding.price_per_hour) == ("unknown", 0.25)
    assert finding.next == f"sweepctl audit --end local:{box.native_id}"


def test_a_box_of_a_state_that_is_gone_is_proved_so(platform: LocalPlatform, box: BoxRecord) -> None:
    known = Known(states={"x": state_with(box)})
    platform.destroy(box.native_id, box.account)
    assert only(platform, known).standing == "vanished"


def test_a_box_of_another_account_is_not_called_gone(platform: LocalPlatform, box: BoxRecord) -> None:
    known = Known(states={"x": state_with(box, account="other/zzzzzzzzzz")})
    platform.destroy(box.native_id, box.account)
    assert only(platform, known).standing == "foreign"


class World:
    """An audit whose states are those given; everything else is real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known: Known) -> None:
        for module in ("sweep.cli.audit", "sweep.cli.audit_end"):
            monkeypatch.setattr(f"{module}.read_known", lambda root: known)


def test_exit_codes(
    platform: LocalPlatform,
    box: BoxRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("RUNPOD_API_KEY", "VAST_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    World(monkeypatch, Known(states={"x": state_with(box)}))
    assert audit(tmp_path, Out(as_json=False)) == 0
    assert "everything that was found is known" in capsys.readouterr().out
    World(monkeypatch, Known(states={"x": state_with(box)}, problems=["the state of y is not known"]))
    assert audit(tmp_path, Out(as_json=False)) == 2
    World(monkeypatch, Known())
    assert audit(tmp_path, Out(as_json=False)) == 1
    said = capsys.readouterr().out
    assert "at least $0.25/h" in said
    assert said.rstrip().endswith(f"sweepctl audit --end local:{box.native_id}")
    assert platform.get(box.native_id, box.account).phase is Phase.RUNNING


def test_nothing_that_somebody_knows_is_ended(
    platform: LocalPlatform, box: BoxRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = f"local:{box.native_id}"
    for known in (
        Known(states={"x": state_with(box)}),
        Known(states={"x": StackState(stack="x")}, births={"x": [birth_of(box, None)]}),
        Known(problems=["the state of y is not known"]),
    ):
        World(monkeypatch, known)
        with pytest.raises(No):
            audit_end.end(tmp_path, what, Out(as_json=True), typed=box.native_id)
    World(monkeypatch, Known())
    for typed in (None, "local-aaaaaaaaaa", ""):
        with pytest.raises(No):
            audit_end.end(tmp_path, what, Out(as_json=True), typed=typed)
    with pytest.raises(SweepstackError):
        audit_end.end(tmp_path, "nowhere:1", Out(as_json=True), typed="1")
    assert platform.get(box.native_id, box.account).phase is Phase.RUNNING


def test_what_nobody_knows_is_ended_when_its_id_is_typed(
    platform: LocalPlatform, box: BoxRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(monkeypatch, Known())
    assert audit_end.end(tmp_path, f"local:{box.native_id}", Out(as_json=True), typed=box.native_id) == 0
    assert platform.get(box.native_id, box.account).phase is Phase.GONE


def test_a_volume_that_its_stack_s_state_lost_is_adopted_and_not_ended_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its tag it is known whose it is; what sweeps left on it is asked after by that stack's check alone."""
    harness = Harness(tmp_path, monkeypatch, machines=False)
    try:
        platform = harness.connect()
        ours = platform.ensure_volume(volume_tag("keeperxxxx", "abl"), "abl", size_gb=10, region=REGION)
        theirs = platform.ensure_volume(volume_tag("otherxxxxx", "abl"), "abl", size_gb=10, region=REGION)
        names = {"identity": "keeperxxxx", "evidence": "file://nowhere/x", "project": "p", "stack": "keep"}
        identity = IdentityEntry(urn="u", **names)
        known = Known(states={"keep": StackState("keep", identity=identity)})
        found = {finding.native_id: finding for finding in look("runpod", platform, known)}
        assert (found[ours.native_id].standing, found[ours.native_id].whose) == ("recorded", ("keep",))
        assert found[ours.native_id].bills_unknown
        assert found[ours.native_id].next.startswith("pulumi up --stack keep    (adopts it")
        assert found[theirs.native_id].next == f"sweepctl audit --end runpod:{theirs.native_id}"
        monkeypatch.setattr(audit_end, "read_known", lambda _: known)
        with pytest.raises(No, match="known to keep") as refused:
            audit_end.end(tmp_path, f"runpod:{ours.native_id}", Out(as_json=False), typed=ours.native_id)
        assert refused.value.next == [found[ours.native_id].next]
        assert platform.get_volume(ours.native_id) is not None
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
        known = Known()
        assert ask([*hosts.adapters, "local"], known) == (["local"], [])
    assert hosts.together, "one host's silence was waited for before the next one was asked"
    assert [problem.split(" could not be asked: ")[0] for problem in known.problems] == hosts.adapters
