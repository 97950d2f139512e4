"""The program: what it asks the engine for, twice the same, and how a mistake reaches a person."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pulumi
import pytest
from pulumi.runtime import mocks as pulumi_mocks
from pydantic import TypeAdapter

from components.from_config import difference
from components.program import one_message
from components.sweep import Sweep
from sweepstack.config.stack_config import StackConfig
from sweepstack.core import spelling
from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.printable import MESSAGE_SHOWN
from sweepstack.core.records import CellText
from sweepstack.launch.cell_shares import Shares
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profiles
from sweepstack.profiles.resolve import resolve
from sweepstack.provider.dispatch import HANDLERS, handler_for
from tests.unit.config.helpers import GOOD, write

REPOSITORY = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + "a" * 64
APPROVAL = f"""\
    approval:
      receipt: {DIGEST}
      actions: [{{verb: destroy, box: box-1, native_id: id-box-1}}]
      waive: [{{cell: lr0.1-seed0, reason: known}}]
      waivers_digest: {DIGEST}
      by: me
      at: 2026-11-21T09:00:00Z
      expires: 2026-11-24T09:00:00Z
encryptionsalt"""


class Outputs(pulumi.runtime.Mocks):
    """Answers as a provider would."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        native = f"id-{args.name}"
        later = {"nativeId": native, "identity": "abc", "evidence": "file://h/e", "account": "h/1", "generation": 1}
        later["stdout"] = "python=3.11.7"
        return native, {**later, **args.inputs}

    shares: ClassVar[dict[str, str]] = {}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[Any, Any]:
        return self.shares


class Monitor(pulumi_mocks.MockMonitor):
    """Keeps the requests."""

    def __init__(self) -> None:
        super().__init__(Outputs())
        self.requests: list[Any] = []

    def RegisterResource(self, request: Any) -> Any:
        self.requests.append(request)
        return super().RegisterResource(request)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "examples" / "digits").mkdir(parents=True)
    (tmp_path / "examples" / "digits" / "train.py").write_text("print(1)\n")
    return tmp_path


def requests(root: Path, text: str) -> dict[tuple[str, str], Any]:
    """(type, name) → what the program asked for."""
    write(root, text)
    config = StackConfig.load(root, "x")
    monitor = Monitor()
    pulumi.runtime.set_mocks(monitor.mocks, project="sweepstack", stack="x", preview=False, monitor=monitor)

    @pulumi.runtime.test
    def program() -> None:
        Sweep(resolve_fleet(config, load_profiles(config.candidates)), root).export()

    program()
    return {(request.type, request.name): request for request in monitor.requests}


def inputs(request: Any) -> dict[str, Any]:
    from google.protobuf import json_format

    return spelling.inside(request.type, json_format.MessageToDict(request.object))


@pytest.mark.parametrize(
    ("begun", "approval", "said"),
    [
        (False, "encryptionsalt", ""),
        (True, "encryptionsalt", "told and not refused, since cells of this sweep have started:"),
        (False, APPROVAL, "told and not refused, since the stack file has an approval:"),
    ],
)
def test_what_no_cell_may_start_with_is_only_told_once_cells_have(
    begun: bool, approval: str, said: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("components.screen.warn", told.append)
    found = Shares(cells={"box-0": ()}, left={"box-0": 6}, begun=begun)
    monkeypatch.setattr(Outputs, "shares", {"shares": found.model_dump_json()})
    text = GOOD.replace(" --seed {seed}", "").replace("encryptionsalt", approval)
    if said:
        assert ("sweepstack:index:Box", "box-0") in requests(project, text)
        assert any("line 11  cells.grid.seed  the job never gets seed" in line and said in line for line in told)
    else:
        with pytest.raises(ConfigError, match="1 mistake; nothing was rented"):
            requests(project, text)


TWO = GOOD.replace("{box-0: {want: running}}", "{box-0: {want: running}, box-1: {want: running}}")


def test_resources_and_their_order(project: Path) -> None:
    made = requests(project, TWO)
    kinds = [kind.rsplit(":", 1)[-1] for kind, _ in made if kind.startswith("sweepstack:index:")]
    groups = ["BoxGroup", "BoxGroup", "Sweep"]
    assert sorted(kinds) == sorted(["Box", "Box", "Gate", "Gate", "Identity", "Queue", "Queue", "Volume", *groups])
    for name in ("box-0", "box-1"):
        box, queue, gate = (made[f"sweepstack:index:{kind}", name] for kind in ("Box", "Queue", "Gate"))
        urns = {kind: f"sweepstack:index:{kind}::{name}" for kind in ("Box", "Queue")}
        assert any(urn.endswith(urns["Box"]) for urn in queue.dependencies)
        for key in ("box", "account", "generation"):
            assert any(urn.endswith(urns["Box"]) for urn in gate.propertyDependencies[key].urns)
            assert any(urn.endswith(urns["Box"]) for urn in queue.propertyDependencies[key].urns)
        assert any(urn.endswith(urns["Queue"]) for urn in gate.dependencies)
        assert all(request.deleteBeforeReplace for request in (box, queue, gate))
        assert not any(
            request.protect or request.retainOnDelete or request.deletedWith for request in (box, queue, gate)
        )
        assert not gate.parent.endswith(urns["Box"])


def test_inputs_are_those_that_the_provider_takes(project: Path) -> None:
    made = requests(project, TWO.replace("encryptionsalt", APPROVAL))
    for token in HANDLERS:
        for (kind, _), request in made.items():
            if kind == token:
                handler_for(token).inputs_type.model_validate(inputs(request))


def test_two_runs_ask_for_the_same_bytes(project: Path) -> None:
    def run() -> dict[tuple[str, str], bytes]:
        made = requests(project, TWO.replace("encryptionsalt", APPROVAL))
        return {key: request.object.SerializeToString(deterministic=True) for key, request in made.items()}

    assert run() == run()


def test_parameters_travel_as_json_text(project: Path) -> None:
    text = GOOD.replace("lr: [0.1, 0.03]", "lr: [20, 20.0, true, x]").replace("seed: [0, 1, 2]", "seed: [0]")
    queue = inputs(requests(project, text)["sweepstack:index:Queue", "box-0"])
    assert queue["cells"] == [
        'lr20-seed0 {"lr": 20, "seed": 0}',
        'lr20.0-seed0 {"lr": 20.0, "seed": 0}',
        'lrtrue-seed0 {"lr": true, "seed": 0}',
        'lrx-seed0 {"lr": "x", "seed": 0}',
    ]
    config = StackConfig.load(project, "x")
    read = TypeAdapter(tuple[CellText, ...]).validate_python(queue["cells"])
    assert [cell.config_digest for cell in read] == [cell.config_digest for cell in config.roster.cells]


def test_a_gone_box_is_left_out_and_its_cells_move(project: Path) -> None:
    made = requests(project, TWO.replace("box-0: {want: running}", "box-0: {want: gone}"))
    assert not [key for key in made if key[1] == "box-0"]
    assert len(inputs(made["sweepstack:index:Queue", "box-1"])["cells"]) == 6


def test_cells_of_other_boxes_are_named(project: Path) -> None:
    made = requests(project, TWO)
    queues = {name: inputs(made["sweepstack:index:Queue", name]) for name in ("box-0", "box-1")}
    own = {name: [cell.split()[0] for cell in queue["cells"]] for name, queue in queues.items()}
    assert sorted(own["box-0"] + own["box-1"]) == sorted(StackConfig.load(project, "x").roster.names)
    texts = {elsewhere_text(cell) for cell in StackConfig.load(project, "x").roster.cells}
    assert queues["box-0"]["elsewhere"] == sorted(text for text in texts if text.split()[0] in own["box-1"])
    assert len(queues["box-0"]["elsewhere"]) == len(own["box-1"])


def test_an_approval_reaches_the_boxes_that_it_names_and_whole(project: Path) -> None:
    made = requests(project, TWO.replace("encryptionsalt", APPROVAL))
    for kind in ("Box", "Queue", "Gate"):
        assert "approval" not in inputs(made[f"sweepstack:index:{kind}", "box-0"])
        approval = inputs(made[f"sweepstack:index:{kind}", "box-1"])["approval"]
        assert approval["receipt"] == DIGEST
        assert approval["waive"] == [{"cell": "lr0.1-seed0", "reason": "known"}]
        assert approval["expires"] == "2026-11-24T09:00:00Z"


def test_code_changes_with_the_work_dir_and_with_nothing_else(project: Path) -> None:
    def code() -> str:
        queue = inputs(requests(project, GOOD)["sweepstack:index:Queue", "box-0"])
        return str(queue["job"]["code"])

    before = code()
    assert code() == before
    (project / "examples" / "digits" / "train.py").write_text("print(2)\n")
    assert code() != before


def test_a_work_dir_that_is_not_there_is_a_config_error(project: Path) -> None:
    write(project, GOOD.replace("examples/digits", "examples/nope"))
    with pytest.raises(Exception, match=r"stacks/Pulumi\.x\.yaml, line \d: job\.workdir: .*nope is not a folder"):
        requests(project, GOOD.replace("examples/digits", "examples/nope"))


def test_our_errors_end_the_program_with_their_message_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pulumi.runtime.settings.configure(pulumi.runtime.Settings("p", "s", engine=None))
    with pytest.raises(SystemExit) as caught, one_message():
        raise ConfigError("what to do")
    assert caught.value.code == MESSAGE_SHOWN
    with pytest.raises(ZeroDivisionError), one_message():
        1 / 0  # noqa: B018


@pytest.mark.parametrize(
    ("theirs", "where"),
    [
        ({"a": {"b": [1, {"c": "x"}]}, "d": "0.1"}, None),
        ({"a": {"b": [1.0, {"c": "x"}]}, "d": 0.1}, None),
        ({"a": {"b": [1, {"c": "y"}]}, "d": "0.1"}, "a.b[1].c"),
        ({"a": {"b": [2, {"c": "x"}]}, "d": "0.1"}, "a.b[0]"),
        ({"a": {"b": [1]}, "d": "0.1"}, "a.b"),
        ({"a": {"b": [1, {"c": "x"}]}}, "d"),
        ({"a": {"b": [1, {"c": "x"}]}, "d": "0.1", "e": 1}, "e"),
        ({"a": {"b": [1, {"c": "x"}]}, "d": "0.1", "approval": {"x": 1}}, None),
    ],
)
def test_another_config_than_the_file_s_is_noticed(theirs: dict[str, Any], where: str | None) -> None:
    assert difference({"a": {"b": [1, {"c": "x"}]}, "d": "0.1"}, theirs) == where


def test_the_program_is_short_and_decides_nothing() -> None:
    import ast

    source = (REPOSITORY / "__main__.py").read_text()
    assert len(source.splitlines()) <= 30
    assert not any(isinstance(node, ast.If | ast.IfExp) for node in ast.walk(ast.parse(source)))


def test_the_program_imports_nothing_heavy() -> None:
    code = (
        "import sys, components.from_config, components.sweep, sweepstack.profiles.load, sweepstack.profiles.resolve\n"
        "heavy = {'numpy', 'sklearn', 'torch', 'typer', 'rich', 'safetensors', 'provider', 'hypothesis'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("stack", ["sweep-a", "sweep-torch"])
def test_the_stacks_of_the_repository_load_and_resolve(stack: str) -> None:
    config = StackConfig.load(REPOSITORY, stack)
    made = resolve(config, load_profiles(config.candidates))
    assert made.platform == "local"
    assert made.price_per_hour
    assert sum(len(box.cells) for box in made.boxes) == {"sweep-a": 6, "sweep-torch": 2}[stack]


@pytest.mark.parametrize("stack", ["sweep-a", "sweep-torch"])
def test_the_stacks_are_laid_out_as_the_engine_rewrites_them(stack: str) -> None:
    """`pulumi stack init` re-saves the file: a second space before a comment would show in everybody's `git diff`."""
    for line in (REPOSITORY / "stacks" / f"Pulumi.{stack}.yaml").read_text().splitlines():
        assert "  " not in line.strip(), line
