"""`sweepctl` on a stack of volumes, typed right and wrong: the right thing, or one message and the next command."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.cli.commands.approve.sign import SIGNER, SIGNING_KEY
from sweepstack.cli.commands.doctor import store as one_store
from sweepstack.cli.commands.doctor.finding import Finding
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.stack_config import StoreConfig
from sweepstack.core.local_decisions import decisions, record_decision
from sweepstack.core.observation import Existence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.end_check import VolumeContext, VolumeEnding, VolumeSeen
from sweepstack.operations.volumes.mounting_sweeps import Mounting, Survey, write_mounting
from sweepstack.status.engine.state import parse_export
from sweepstack.teardown.check import may_end
from tests.unit.cli.support import IDENTITY, STACK, Result, World

KEEPER = "keeperxxxx"
ENGINE = """\
#!/bin/sh
echo "$@" >> {home}/calls
case "$1-$2" in
  stack-ls) cat {home}/ls.json;;
  stack-export) if [ -f {home}/state-$4.json ]; then exec cat {home}/state-$4.json; fi
    echo "error: no stack named '$4' found" >&2; exit 255;;
  *) if [ -f {home}/$1.sh ]; then . {home}/$1.sh; fi;;
esac
"""
FILE = """\
config:
  sweepstack:store:
    platform: local
    volumes:
      abl: {size: 2GB, keep_until: 2031-01-31}
    pull_to: results/keep
"""


@dataclass
class Keep:
    """The stack `keep` with the volume `abl`, beside the sweep of a world; both are up unless a test says otherwise."""

    world: World
    volume: str = field(init=False)
    entry: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        world = self.world
        (world.engine / "pulumi").write_text(ENGINE.format(home=world.engine))
        (world.root / "stacks" / "Pulumi.keep.yaml").write_text(FILE)
        self.uri = f"file://{socket.gethostname()}{world.root / 'results' / 'keep'}"
        self.store = EvidenceStore.found(self.uri, KEEPER, "sweepstack", "keep")
        made = world.platform.ensure_volume(box_layout.volume_tag(KEEPER, "abl"), "abl", size_gb=2)
        self.volume = world.volume = made.native_id
        self.entry = {"adapter": "local", "name": "abl", "native_id": made.native_id, "location": "here"}
        self.entry |= {"identity": KEEPER, "evidence": self.uri, "guarded": True, "price_per_month": 0.0}
        self.entry |= {"actual_size_gb": 2, "keep_until": "2031-01-31"}
        (world.engine / "ls.json").write_text(json.dumps([{"name": "keep"}, {"name": STACK}]))
        self.save()

    def save(self, *, volumes: bool = True) -> None:
        """The states that the engine prints."""
        world = self.world
        known = {"identity": KEEPER, "evidence": self.uri, "project": "sweepstack", "stack": "keep"}
        resources = [world.resource("Identity", "identity", KEEPER, known | {"pull_to": "results/keep"})]
        if volumes:
            resources += [world.resource("Volume", "abl", self.volume, self.entry)]
        keep = {"version": 3, "deployment": {"resources": resources}}
        (world.engine / "state-keep.json").write_text(json.dumps(keep))
        (world.engine / f"state-{STACK}.json").write_text(json.dumps(world.export()))

    def used(self) -> None:
        """A box of the sweep mounts the volume and runs cells there; the sweep left its note."""
        self.world.add("box-0").launch("lr0.1")
        note = {"stack": STACK, "identity": IDENTITY, "evidence": self.world.uri, "native_id": self.volume}
        write_mounting(self.store, Mounting(**note, at=datetime.now(UTC)))
        self.save()

    def lost(self) -> None:
        """The volume is gone, behind everybody's back."""
        shutil.rmtree(self.world.platform_root / "volumes" / self.volume)

    def run(self, *words: str, **how: Any) -> Result:
        return self.world.run(*words, stack=how.pop("stack", "keep"), fresh=False, **how)


@pytest.fixture
def keep(world: World) -> Keep:
    return Keep(world)


def test_status_shows_what_is_kept_for_whom_and_what_to_type(keep: Keep) -> None:
    fresh = keep.run("status")
    assert fresh.code == 0, fresh
    assert "keep   1 volume   $0.00/month   LOCKED" in fresh.out
    assert "no sweep so far" in fresh.out
    assert "next   mounts: {/ckpt: {source: abl}} in the stack file of a sweep" in fresh.out
    keep.used()
    document = keep.run("status", "--json").json
    (volume,) = document["volumes"]
    assert (volume["state"], volume["used_by"], volume["size_gb"]) == ("locked", [STACK], 2)
    assert (volume["usd_per_month"], volume["keep_until"], document["bills"]) == (0.0, "2031-01-31", "nothing")
    assert document["next"][0].startswith("sweepctl finish --stack keep")


def test_status_names_who_signed_the_end_of_a_volume_and_who_is_missing(keep: Keep, tmp_path: Path) -> None:
    signers = ""
    for name in ("ana", "ben"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / name)]
        subprocess.run(command, check=True, timeout=300)
        signers += f"{name} {(tmp_path / f'{name}.pub').read_text()}"
    (keep.world.root / "policy.yaml").write_text("approvers: [ana, ben]\nabandon_needs: 2\n")
    (keep.world.root / "allowed_signers").write_text(signers)
    by_ana = [f"{SIGNING_KEY}={tmp_path / 'ana'}", f"{SIGNER}=ana", "--sign"]
    given = keep.run("give-up", "data/abl", "--reason", "not needed", *by_ana)
    assert given.code == 0, given
    (volume,) = keep.run("status", "--json").json["volumes"]
    (approval,) = volume["approvals"]
    assert (approval["where"], [one["name"] for one in approval["signed_by"]]) == ("the stack file", ["ana"])
    assert approval["signed_by"][0]["listed"]
    assert "1 of ben" in approval["missing"][0]
    screen = " ".join(keep.run("status").out.split())
    assert f"signed abl: by ana ({approval['signed_by'][0]['key']})" in screen
    assert "1 of ben" in screen
    by_ben = [f"{SIGNING_KEY}={tmp_path / 'ben'}", f"{SIGNER}=ben"]
    assert keep.run("cosign", *by_ben, types="abl").code == 0
    (volume,) = keep.run("status", "--json").json["volumes"]
    assert volume["state"] == "cleared"
    assert [one["name"] for one in volume["approvals"][0]["signed_by"]] == ["ana", "ben"]
    assert volume["approvals"][0]["missing"] == []


def test_status_tells_of_what_is_gone_what_is_lost_and_what_nobody_knows(keep: Keep) -> None:
    keep.save(volumes=False)
    lost = keep.run("status")
    assert lost.code == 1, lost
    assert f"UNKNOWN {keep.volume} (sweepstack-{KEEPER}-volume-abl" in lost.out
    assert "next   pulumi up --stack keep    (adopts" in lost.out
    keep.save()
    keep.lost()
    gone = keep.run("status")
    assert gone.code == 0, gone
    assert "0 volumes" in gone.out
    assert "makes what is gone again" in gone.out
    keep.world.move_registry()
    unknown = keep.run("status")
    assert unknown.code == 2, unknown
    assert "next   sweepctl doctor --stack keep" in unknown.out
    (keep.world.engine / "state-keep.json").unlink()
    wrong = keep.run("status", stack="keeep").err
    assert (
        'there is no stack keeep: the backend has none, and stacks/Pulumi.keeep.yaml is not there; did you mean "keep"?'
        in wrong
    )
    assert wrong.endswith("next   sweepctl status --stack keep\n")


def test_finish_names_whose_cells_are_not_safe_and_touches_nothing(keep: Keep) -> None:
    keep.used()
    said = keep.run("finish", types="yes")
    assert said.code == 1, said
    assert "$ sweepctl approve --stack keep" in said.out
    assert "no receipt says that they are safe" in said.err
    assert f"box box-0 of {STACK}" in said.err
    assert f"next   sweepctl finish --stack {STACK}" in said.err
    assert keep.world.calls() == []


def test_finish_asks_once_and_ends_when_nothing_is_left(keep: Keep) -> None:
    home = keep.world.engine
    (home / "after.json").write_text(json.dumps(keep.world.empty()))
    gone = f"rm -rf {keep.world.platform_root / 'volumes' / keep.volume}; cp $home/after.json $home/state-keep.json"
    keep.world.on("destroy", gone)
    refused = keep.run("finish", types="no")
    assert refused.code == 1
    assert "not approved; nothing was written" in refused.err
    assert keep.world.calls() == []
    done = keep.run("finish", types="yes")
    assert done.code == 0, done
    assert [line.split(" --stack")[0] for line in keep.world.calls()] == ["up", "destroy"]
    assert "no volume of keep is left, and nothing of it bills" in done.out
    nothing = keep.run("finish", types="yes")
    assert nothing.code == 1
    assert "there is no volume in the state of keep: nothing to finish" in nothing.err


def test_finish_goes_on_by_an_approval_that_holds_and_believes_no_exit_code(keep: Keep) -> None:
    approved = keep.run("approve", types="yes")
    assert approved.code == 0, approved
    said = keep.run("finish")  # nobody is there to ask: the approval in the file is the word
    assert said.code == 1, said
    assert [line.split(" --stack")[0] for line in keep.world.calls()] == ["up", "destroy"]
    assert f"still there: {keep.volume}" in said.out
    assert "next   sweepctl status --stack keep" in said.out


def doctor(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    monkeypatch.setattr("sweepstack.cli.commands.doctor.sweep.find_engine", lambda: str(keep.world.engine / "pulumi"))
    target = Target.find("keep", start=keep.world.root)
    return {finding.name: finding for _, check in one_store.checks(target) for finding in check()}


def test_doctor_of_volumes(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep.used()
    well = doctor(keep, monkeypatch)
    bad = {name for name, finding in well.items() if finding.verdict != "ok" and name != "disk (evidence)"}
    assert bad == set(), well
    assert "1 volume on local" in well["stack file"].found
    assert well["state"].found == "1 volume in it"
    assert f"used by {STACK}" in well["volumes"].found
    keep.entry["keep_until"] = "2026-01-31"
    keep.save()
    late = doctor(keep, monkeypatch)["volumes"]
    assert (late.verdict, late.fix) == ("warn", "a later keep_until, or sweepctl finish --stack keep")
    keep.save(volumes=False)
    stray = doctor(keep, monkeypatch)["volumes"]
    assert (stray.verdict, stray.fix) == ("fail", "pulumi up --stack keep    (adopts it)")
    keep.save()
    keep.lost()
    assert "is gone with all that was on it" in doctor(keep, monkeypatch)["volumes"].found


def test_doctor_of_volumes_that_can_not_be_kept(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StackFile.locate(keep.world.root, "keep")
    file.path.write_text(FILE.replace("size: 2GB", "sise: 2GB"))
    found = doctor(keep, monkeypatch)
    assert found["stack file"].verdict == "fail"
    assert 'did you mean "size"' in found["stack file"].found
    file.path.write_text(FILE.replace("platform: local", "platform: runpod"))
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(keep.world.folder))
    found = doctor(keep, monkeypatch)
    assert "volumes.abl.region is missing" in found["stack file"].found
    assert found["runpod"].verdict == "fail"
    assert "RUNPOD_API_KEY" in found["runpod"].found


def test_new_writes_a_stack_of_volumes_that_holds(world: World) -> None:
    written = world.run("init", "abl-store", "--store", stack=None)
    assert written.code == 0, written
    config = StoreConfig.load(world.root, "abl-store")
    assert list(config.volumes) == ["abl-store"]
    again = world.run("init", "abl-store", stack=None)
    assert again.code == 1
    assert "is there already, and was left as it is" in again.err
    long = f"{'x' * 34}-{'y' * 20}"
    assert world.run("init", long, "--store", stack=None).code == 0
    assert list(StoreConfig.load(world.root, long).volumes) == ["x" * 34]


def test_the_records_of_volumes_may_move_too(keep: Keep) -> None:
    """`sweepctl pull --to` writes the new place into a file of volumes as into one of a sweep."""
    file = StackFile.locate(keep.world.root, "keep").of_store()
    assert file.write_pull_to("s3://lab/keep")
    assert file.path.read_text() == FILE.replace("results/keep", "s3://lab/keep")


def test_an_approval_holds_as_long_as_the_policy_allows(keep: Keep) -> None:
    """As for boxes: what is asked for by default needs no option."""
    (keep.world.root / "policy.yaml").write_text("max_expiry: 1h\n")
    refused = keep.run("approve", "--expires", "24h", types="yes")
    assert refused.code == 1, refused
    assert "may hold for 1h at most" in refused.err
    given = keep.run("approve", types="yes")
    assert given.code == 0, given
    approval = StackFile.locate(keep.world.root, "keep").of_store().approval()
    assert approval is not None
    assert approval.expires - approval.at == timedelta(hours=1)


def test_finish_types_nothing_where_the_engine_runs_no_command(keep: Keep) -> None:
    path = keep.world.engine / "state-keep.json"
    state = json.loads(path.read_text())
    state["deployment"]["resources"][-1]["parent"] = "urn:pulumi:keep::sweepstack::sweepstack:index:Store::lost"
    path.write_text(json.dumps(state))
    refused = keep.run("finish", types="yes")
    assert refused.code == 1, refused
    assert "next   pulumi state repair --stack keep --yes" in refused.err
    assert keep.world.calls() == []


def test_a_revoked_end_of_a_volume_stays_revoked_where_the_evidence_is_away(keep: Keep) -> None:
    """As for a box: it was revoked on this computer, and the state still holds the abandonment."""
    given = keep.run("give-up", "data/abl", "--reason", "not needed", types="abl")
    assert given.code == 0, given
    approval = StackFile.locate(keep.world.root, "keep").of_store().approval()
    assert approval is not None
    state = json.loads((keep.world.engine / "state-keep.json").read_text())
    (entry,) = [one for one in parse_export("keep", state).volumes if one.guarded]

    def way() -> str | None:
        return may_end(
            VolumeEnding(VolumeContext.of_entry(entry), approval, VolumeSeen(Existence.EXISTS), Survey()), full=True
        ).way

    assert way() == "abandoned"
    assert keep.run("revoke").code == 0
    assert way() is None
    keep.store.root.rename(keep.store.root.with_name("away"))
    assert way() is None
    ahead = decisions(entry.native_id)[-1].model_copy(update={"at": datetime.now(UTC) + timedelta(minutes=1)})
    record_decision(ahead)  # that computer's clock was ahead: what is approved now is later all the same
    assert keep.run("give-up", "data/abl", "--reason", "not needed").code == 0
    approval = StackFile.locate(keep.world.root, "keep").of_store().approval()
    assert approval is not None
    assert way() == "abandoned"
