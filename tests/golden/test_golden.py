"""What earlier versions left is read by this one: each golden sweep, whole. A field that is taken away or renamed, a
record that is asked for more than it had, and an `up` that would change what the stack file did not, are found here.

Made by `python -m tests.golden ISSUE` at the end of each issue, and never changed afterwards.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core import schema, spelling
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.records import Manifest
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import recorded_retries
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.sweep.roster_diff import file_roster
from sweepstack.provider import dispatch
from sweepstack.provider.grpc_service import Servicer
from sweepstack.provider.grpc_stubs import provider_pb2
from sweepstack.provider.session import Operation, Session
from sweepstack.provider.wire import to_struct
from sweepstack.status.engine.state import parse_export
from sweepstack.teardown import refusal
from sweepstack.teardown.policy_in_force import in_state
from sweepstack.teardown.refusal import waiting_cost

GOLDEN = sorted(Path(__file__).parent.glob("*.tar.xz"))
PLAIN = [path for path in GOLDEN if not re.search(r"-(host|slurm)\.tar\.xz$", path.name)]
NAME = "t"
THAT_DAY = datetime(2026, 12, 1, tzinfo=UTC)


def named(path: Path) -> str:
    return path.name.partition(".")[0]


@pytest.fixture(scope="module", params=GOLDEN, ids=named)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one golden sweep, unpacked."""
    folder = tmp_path_factory.mktemp("golden")
    subprocess.run(["tar", "--extract", "--file", request.param, "--directory", folder], check=True)
    return folder


def evidence(golden: Path) -> EvidenceStore:
    """Its evidence, wherever it was unpacked."""
    return EvidenceStore.open(evidence_uri(golden, str(golden / "evidence")) or "")


def boxes(golden: Path) -> list[str]:
    """Those of its stack file: two, or one on a host or a cluster."""
    return sorted(StackFile(golden / "stack.yaml", "stack.yaml").sweep()["boxes"])


def sweepctl(golden: Path, *words: str) -> tuple[int, Any]:
    """A command that is given the evidence alone; its exit code and its document."""
    place = ("--evidence", str(golden / "evidence"), "--json")
    code = "import sys; from sweepstack.cli.entry import main; sys.argv[0] = 'sweepctl'; main()"
    env = os.environ | {"HOME": str(golden), "XDG_DATA_HOME": str(golden / "data"), "XDG_CACHE_HOME": str(golden / "c")}
    done = subprocess.run(
        [sys.executable, "-c", code, *words, *place], cwd=golden, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_there_is_one() -> None:
    assert GOLDEN


@pytest.mark.parametrize("moment", ["locked", "cleared"])
def test_its_state_is_read_whole_and_changes_by_itself_no_further(golden: Path, moment: str) -> None:
    export = json.loads((golden / f"{moment}.json").read_text())
    state = parse_export(NAME, export)
    assert state.problems == ()
    assert sorted(box.name for box in state.boxes) == boxes(golden)
    assert {box.clearance.partition(" ")[0] for box in state.boxes} == {moment}
    assert not any(box.unread for box in state.boxes)
    assert {box.approval is not None for box in state.boxes} == {moment == "cleared"}
    assert {name for queue in state.queues for name in queue.names} == {"seed0", "seed1", "seed2"}
    own = [resource for resource in export["deployment"]["resources"] if resource["type"] in dispatch.HANDLERS]
    none = set() if len(boxes(golden)) == 2 else {"sweepstack:index:Volume"}  # a host's own disk outlives nothing
    assert {resource["type"] for resource in own} == set(dispatch.HANDLERS) - none
    for resource in own:
        handler = dispatch.handler_for(resource["type"])
        inputs, outputs = (spelling.inside(resource["type"], resource[part]) for part in ("inputs", "outputs"))
        read = handler.inputs_type.model_validate({k: v for k, v in inputs.items() if k != "__defaults"})
        dispatch._state(handler, inputs, outputs)
        op = Operation(Session(golden, lambda *_: None), resource["urn"])
        assert dispatch.diff(op, inputs, outputs, dispatch.to_properties(read)).changed == ()


def test_its_records_are_read_whole(golden: Path) -> None:
    store = evidence(golden)
    births = store.births()
    assert [birth.box for birth in births] == boxes(golden)
    assert all(birth.ended_at is not None for birth in births)
    assert {cell for launch in store.launches() for cell in launch.cells} >= {"seed0", "seed1", "seed2"}
    digest = store.latest_receipt()
    assert digest is not None
    receipt = store.receipt(digest)
    assert {cell.name: cell.state for cell in receipt.cells} == {
        "seed0": "verified",
        "seed1": "verified",
        "seed2": "failed",
    }
    assert check_files(store, receipt, ["seed0", "seed1"], full=True) == []
    starts = {}
    for birth in births:
        journal = store.journal(birth.box, birth.generation)
        assert journal is not None
        starts |= {name: cell.attempts for name, cell in journal.cells.items()}
        clearance = store.clearance(birth.native_id or "")
        assert clearance is not None
        assert [waiver.cell for waiver in clearance.waive] == ["seed2"]
        entries, problems = store.ledger(birth.native_id)
        assert entries
        assert problems == []
    assert starts["seed0"] == 2
    assert {name: retry.retry for name, retry in recorded_retries(store).items()} == {"seed0": 1}
    for code in store.codes():
        assert store.read_code(code)


def test_what_went_on_in_new_code_is_on_record() -> None:
    """What K4 put there: a failure with a checkpoint, a seal across code, and a retry that the stack file asks for."""
    (path,) = (path for path in GOLDEN if path.name.endswith("-K4.tar.xz"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "--extract", "--file", path, "--directory", folder], check=True)
        store = evidence(Path(folder))
        seal = Manifest.model_validate_json(store.copies.manifest("seed0") or b"")
        assert (len(store.codes()), len(seal.checkpoints_of)) == (2, 1)
        assert {seal.code, *seal.checkpoints_of} == set(store.codes())
        journals = (Path(folder) / "evidence" / "journals").glob("*.jsonl")
        lines = [json.loads(line) for journal in journals for line in journal.read_text().splitlines()]
        assert {line["checkpoints"] for line in lines if line["event"] == "cell-failed"} == {True}
        assert StackFile(Path(folder) / "stack.yaml", "stack.yaml").sweep()["cells"]["retry"] == {"seed0": 1}


def test_its_policy_is_the_one_that_its_records_name(golden: Path) -> None:
    state = parse_export(NAME, json.loads((golden / "cleared.json").read_text()))
    held = {policy.digest for policy in in_state(state.policies).policies}
    assert {birth.policy for birth in evidence(golden).births()} == (held or {""})


@pytest.mark.parametrize(
    "golden",
    # The others in make proof: what the evidence of each holds is read above; the oldest and the newest are read here.
    [pytest.param(one, marks=[] if one in (PLAIN[0], PLAIN[-1]) else [pytest.mark.proof]) for one in GOLDEN],
    indirect=True,
    ids=named,
)
def test_the_commands_that_need_nothing_else_answer(golden: Path) -> None:
    code, results = sweepctl(golden, "results", "--all")
    assert {cell["name"]: cell["state"] for cell in results["cells"]} == {"seed0": "verified", "seed1": "verified"}
    assert {cell["name"]: cell["state"] for cell in results["missing"]} == {"seed2": "waived", "seed3": "waived"}
    assert code == 0
    code, verified = sweepctl(golden, "verify")
    assert (code, verified["verified"], verified["total"]) == (0, 2, 3)
    code, log = sweepctl(golden, "logs", "seed2")
    assert code == 0
    assert "seed2 was told to fail" in log["text"]
    assert sweepctl(golden, "show", "seed1")[0] == 0


def test_its_stack_file_names_the_same_cells(golden: Path) -> None:
    """Other names or digests of cells would run a finished sweep again."""
    written, _ = file_roster(StackFile(golden / "stack.yaml", "stack.yaml"), golden)
    store = evidence(golden)
    receipt = store.receipt(store.latest_receipt() or "")
    assert written is not None
    assert written.digest == receipt.roster_digest
    found = {cell.name: cell.config_digest for cell in written.cells}
    assert found == {cell.name: cell.config_digest for cell in receipt.cells}


# Spelled as before schema 2, as since, and both in one


Choice = Callable[[], bool]


def in_both(old: Any, new: Any, choose: Choice) -> Any:
    """`old`, with those of its names spelled as in `new` for which `choose` says so."""
    if isinstance(old, dict):
        pairs = zip(old.items(), new.items(), strict=True)
        return {(k if choose() else key): in_both(one, o, choose) for (key, one), (k, o) in pairs}
    return [in_both(*pair, choose) for pair in zip(old, new, strict=True)] if isinstance(old, list) else old


def spelled(export: Any, choose: Choice) -> Any:
    """A state with names of ours in the new spelling where `choose` says so."""
    export = copy.deepcopy(export)
    for resource in export["deployment"]["resources"]:
        for part in ("inputs", "outputs"):
            old = spelling.inside(resource["type"], resource.get(part, {}))
            resource[part] = in_both(old, spelling.outside(resource["type"], old), choose)
    return export


@functools.cache
def states() -> dict[str, Any]:
    """Each state of each golden sweep."""
    found = {}
    for path in GOLDEN:
        with tarfile.open(path) as archive:
            for moment in ("locked", "cleared"):
                file = archive.extractfile(f"{moment}.json")
                assert file is not None
                found[f"{named(path)} {moment}"] = json.load(file)
    return found


class Context:
    """What a call of the engine can be told."""

    def abort(self, code: Any, text: str) -> None:
        raise SweepstackError(text)

    def abort_with_status(self, status: Any) -> None:
        raise SweepstackError(status.details)


def asked(folder: Path, export: Any) -> list[Any]:
    """What the provider says of each resource: to Diff with its own inputs and with a change, and to Delete."""
    servicer, said = Servicer(Session(folder, lambda *_: None)), []
    for resource in export["deployment"]["resources"]:
        if resource["type"] not in dispatch.HANDLERS:
            continue
        token, urn = resource["type"], resource["urn"]
        inputs, outputs = to_struct(resource["inputs"]), to_struct(resource["outputs"])
        same = spelling.inside(token, resource["inputs"])
        for news in (same, same | {"want": "stopped", "roster_digest": "sha256:" + "0" * 64}):
            words = {"urn": urn, "old_inputs": inputs, "olds": outputs, "news": to_struct(news)}
            answer = servicer.Diff(provider_pb2.DiffRequest(**words), Context())
            changed = [name for name in answer.diffs if name != schema.KEY]  # old names alone are an update of it
            said.append((changed, list(answer.replaces), answer.deleteBeforeReplace))
        request = provider_pb2.DeleteRequest(urn=urn, id=resource["id"], old_inputs=inputs, properties=outputs)
        try:
            said.append(servicer.Delete(request, Context()))
        except SweepstackError as error:
            said.append(" ".join(str(error).split()))
    return said


@pytest.mark.parametrize("state", sorted(states()))
def test_status_reads_it_alike_in_every_spelling(state: str) -> None:
    export, choices = states()[state], random.Random(state)
    old, new = spelled(export, lambda: False), spelled(export, lambda: True)
    read = parse_export(NAME, old)
    assert read.boxes
    assert read == parse_export(NAME, export)
    assert read == parse_export(NAME, new)
    for part in ("inputs", "outputs"):
        ours = [one for one in new["deployment"]["resources"] if one["type"] in dispatch.HANDLERS]
        assert not any(spelling.is_old(one["type"], one[part]) for one in ours)
    for _ in range(20):
        assert read == parse_export(NAME, spelled(export, lambda: choices.random() < 0.5))


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(
            f"{named(one)} {moment}", marks=[] if one is PLAIN[-1] and moment == "cleared" else pytest.mark.proof
        )
        for one in PLAIN
        for moment in ("locked", "cleared")
    ],
)
def test_the_provider_answers_alike_in_every_spelling(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    # A refusal leaves out what the one before said: with a clock that runs, a cent more would be another refusal.
    monkeypatch.setattr(refusal, "waiting_cost", lambda facts, **_: waiting_cost(facts, now=THAT_DAY))
    export, choices = states()[state], random.Random(state)
    first = asked(tmp_path, spelled(export, lambda: False))
    assert sum(isinstance(one, str) for one in first) >= 4, "an end that is refused"
    assert first == asked(tmp_path, spelled(export, lambda: True))
    for one, again in zip(first, asked(tmp_path, spelled(export, lambda: choices.random() < 0.5)), strict=True):
        assert again == one
