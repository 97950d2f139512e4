"""A program in YAML: the same sweep, the same state, and no other way round the gate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.engine.commands import assert_failed, assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.looking import line_diff

TEN_LINES = """\
name: sweepstack
runtime: yaml
stackConfigDir: stacks
options: {refresh: always}
plugins:
  providers: [{name: sweepstack, path: ./sweepstack/provider}]
resources:
  t: {type: "sweepstack:Sweep"}
outputs:
  boxes: ${t.boxes}
"""
BY_ITSELF = ("not specified in --target list", "unknown provider")
"""Words by which the engine refuses a target without asking us."""
WITHOUT = TEN_LINES.partition("resources:")[0] + "resources: {}\n"


def write_yaml(stack: Stack, text: str = TEN_LINES) -> None:
    """The program from now on. As a file of its own: the checkout's may be a link."""
    (stack.project / "Pulumi.yaml").unlink()
    (stack.project / "Pulumi.yaml").write_text(text)


def with_inputs(stack: Stack, more: str = "", *, run: str = "python train.py --seed {seed} --out {out}") -> str:
    """The program that declares the sweep itself; the stack file has none."""
    properties = f"""\
    properties:
      job:
        workdir: {stack.job}
        run: {run}
        env: {{DRILL_CONTROL: {stack.control}}}
        resources: {{cpu: 1}}
        minFree: {{inodes: 10}}
      cells: {{grid: {{seed: [0, 1]}}}}
      artifacts:
        model.safetensors: {{load: safetensors, keys: [w1], finite: require}}
        metrics.json: {{load: json, keys: [loss], finite: report}}
      candidates: [local]
      overrides: {{local: {{pricePerHour: 1.25}}}}
      boxes: {{box-0: {{want: running}}}}
      pullTo: {stack.evidence}
{more}outputs:
"""
    return TEN_LINES.replace(
        't: {type: "sweepstack:Sweep"}\noutputs:\n', f"t:\n    type: sweepstack:Sweep\n{properties}"
    )


def declared(stack: Stack) -> dict[str, Any]:
    """URN → what a program says of it: without `live`, which a refresh writes."""
    found = {}
    for one in stack.state()["resources"]:
        inputs = {key: value for key, value in one.get("inputs", {}).items() if key != "live"}
        depends = sorted(one.get("dependencies", ()))
        kept = {key: one.get(key) for key in ("type", "parent", "protect", "retainOnDelete")}
        if "parent" in one:
            found[one["urn"]] = kept | {"inputs": inputs, "depends": depends}
    return found


@pytest.fixture
def in_yaml(small_once: Stack) -> Iterator[Stack]:
    """One box with two cells at work, none verified, declared by a program in YAML."""
    yield from by_yaml(small_once)


def by_yaml(stack: Stack) -> Iterator[Stack]:
    stack.restore("finished")
    python = (stack.project / "Pulumi.yaml").read_text()
    write_yaml(stack)
    try:
        yield stack
    finally:
        write_yaml(stack, python)


def test_ten_lines_of_yaml_are_the_sweep_that_the_python_program_is(make_stack: Callable[..., Stack]) -> None:
    """The loop from nothing to its end, by Construct; on the way the class in process finds nothing to change."""
    assert len(TEN_LINES.splitlines()) == 10
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    python = (stack.project / "Pulumi.yaml").read_text()
    write_yaml(stack)
    ok(stack.up())
    stack.wait_done()
    by_construct = declared(stack)
    write_yaml(stack, python)
    ok(stack.up("--expect-no-changes"))
    in_process = declared(stack)
    words = line_diff(*(json.dumps(one, indent=1) for one in (in_process, by_construct)))
    assert by_construct == in_process, words
    assert len(by_construct) == 7
    write_yaml(stack)
    before = stack.snapshot()
    refused = stack.destroy()
    assert_refused(refused, stack.cells)
    stack.assert_unchanged(before, refused)
    stack.run_loop()
    ok(stack.destroy())
    assert stack.native_ids() == []


@pytest.mark.proof  # what is written, read, edited and refused: tests/unit/config/test_declared.py
def test_a_program_declares_the_sweep_itself(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",), config=False)
    bare, program = stack.config_file.read_text(), stack.config_file.with_name(f"Program.{stack.name}.yaml")
    for wrong, says in (
        (with_inputs(stack, "      maxPrice: a lot\n"), "maxPrice"),
        (with_inputs(stack, "      ignoreBalance: {fn::secret: mine}\n"), "ignoreBalance is a secret"),
        (with_inputs(stack, run="python train.py"), "cells.grid.seed"),
    ):
        write_yaml(stack, wrong)
        assert_failed(stack.pulumi("preview"), says)
        assert not stack.native_ids()
    write_yaml(stack, with_inputs(stack))
    ok(stack.pulumi("preview"))
    written = program.read_text()
    placed = ok(stack.sweepctl("place", "--json")).json()["placement"]
    ok(stack.up())
    assert yaml.safe_load(stack.config_file.read_text())["config"] == {"sweepstack:sweep": {"placement": placed}}
    ok(stack.up("--expect-no-changes"))
    assert program.read_text() == written
    stack.wait_done()
    before = stack.snapshot()
    refused = stack.destroy()
    assert_refused(refused, stack.cells)
    stack.assert_unchanged(before, refused)
    ok(stack.sweepctl("place", "clear"))
    assert stack.config_file.read_text() == bare, "the stack file is a person's and the machines'"
    assert_failed(stack.sweepctl("drop", "seed1", "--reason", "x"), "cells: {drop: {seed1: x}}")
    stack.config_file.write_text(bare + "config:\n  sweepstack:sweep: {max_price: 3}\n")
    assert_failed(stack.up(), "max_price", "the program declares this sweep")
    stack.config_file.write_text(bare)
    stack.wait_idle()
    ok(stack.sweepctl("retry", "seed1", "--reason", "a doubt"))
    assert (stack.config_file.read_text(), program.read_text()) == (bare, written)
    ok(stack.up())
    stack.wait_for(lambda: stack.started("box-0").count("seed1") == 2, "seed1 to run again")
    stack.run_loop()
    assert "approval" in stack.config_file.read_text()
    assert program.read_text() == written
    ok(stack.sweepctl("revoke"))
    assert stack.config_file.read_text().strip() == bare.strip()
    ok(stack.up())
    assert_refused(stack.destroy(), ["box-0"])
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []


@pytest.mark.proof
def test_no_command_goes_round_the_gate(in_yaml: Stack) -> None:
    stack = in_yaml
    before = stack.snapshot()
    box, group = stack.urn("Box", "box-0"), f"**sweepstack:index:Sweep::{stack.name}"
    for words in (
        ("destroy",),
        ("destroy", "--target", box),  # the engine says no, since queue and gate would go, too
        ("destroy", "--target", box, "--target-dependents"),
        ("destroy", "--target", group, "--target-dependents"),
        ("destroy", "--continue-on-error"),
        ("destroy", "--run-program"),
        ("destroy", "--refresh=false"),
        ("up", "--target-replace", box),
        ("up", "--replace", box),
    ):
        result = stack.pulumi(*words, "--skip-preview")
        if not [word for word in BY_ITSELF if word in result.text]:
            assert_refused(result, stack.cells)
        assert result.rc != 0
        stack.assert_unchanged(before, result, state=False)
        assert [one["id"] for one in stack.resources("Box")] == list(before.boxes), str(result)


@pytest.mark.proof
def test_a_sweep_taken_out_of_the_program_is_not_ended(in_yaml: Stack) -> None:
    stack = in_yaml
    before = stack.snapshot()
    write_yaml(stack, WITHOUT)
    for words in ((), ("--continue-on-error",), ("--refresh=false",)):
        result = stack.up(*words)
        assert_refused(result, stack.cells)
        stack.assert_unchanged(before, result, state=False)
    write_yaml(stack, TEN_LINES.replace('"sweepstack:Sweep"}', '"sweepstack:Sweep", options: {retainOnDelete: true}}'))
    stack.up()
    write_yaml(stack, WITHOUT)
    stack.up()
    stack.assert_unchanged(before, state=False)


@pytest.mark.proof
def test_status_names_a_box_that_was_deleted_from_the_state(in_yaml: Stack) -> None:
    stack = in_yaml
    native_id = stack.native_id("box-0")
    stack.edit_in_state("delete", stack.urn("Sweep"), "--target-dependents")
    assert native_id in stack.sweepctl("status").text
    assert stack.native_ids() == [native_id]


@pytest.mark.proof
def test_the_component_of_the_other_kind_is_refused_in_words(in_yaml: Stack) -> None:
    stack = in_yaml
    write_yaml(stack, TEN_LINES.replace("sweepstack:Sweep", "sweepstack:Store").replace("t.boxes", "t.volumes"))
    said = stack.up()
    assert_failed(said, "has sweepstack:sweep, and the program declares sweepstack:index:Store")
    assert "Traceback" not in said.text
    write_yaml(stack, TEN_LINES.replace("sweepstack:Sweep", "sweepstack:BoxGroup"))
    assert stack.up().rc != 0
    assert stack.native_ids()


def store_of(stack: Stack, properties: str = "") -> str:
    """The program of a stack of volumes. `properties`: what it declares; nothing: the stack file has it."""
    program = TEN_LINES.replace("boxes: ${t.boxes}", "volumes: ${t.volumes}").replace(":Sweep", ":Store")
    return program.replace('{type: "sweepstack:Store"}', f'{{type: "sweepstack:Store"{properties}}}')


@pytest.mark.proof
def test_volumes_are_declared_in_yaml_from_nothing_to_their_end(make_stack: Callable[..., Stack]) -> None:
    """The stack of volumes by Construct, with its keys in the program; on the way the class in process, with the same
    keys in the stack file, finds nothing to change. Its approval stands in the stack file all the same."""
    stack = make_stack(config=False)
    bare, python = stack.config_file.read_text(), (stack.project / "Pulumi.yaml").read_text()
    volumes = "{abl-store: {size: 2GB, KEEP: 2026-01-31}, other: {size: 1GB}}"
    given = f"platform: local, volumes: {volumes.replace('KEEP', 'keepUntil')}, pullTo: {stack.evidence}"
    in_file = f"platform: local, volumes: {volumes.replace('KEEP', 'keep_until')}, pull_to: {stack.evidence}"
    by_file = f"{bare}config:\n  sweepstack:store: {{{in_file}}}\n"
    write_yaml(stack, store_of(stack, f", properties: {{{given}}}"))
    ok(stack.up())
    assert len(stack.volume_contents()) == 2
    by_construct, written = declared(stack), stack.config_file.with_name(f"Program.{stack.name}.yaml")
    assert len(by_construct) == 4
    write_yaml(stack, python)
    stack.config_file.write_text(by_file)
    written.unlink()
    ok(stack.up("--expect-no-changes"))
    words = line_diff(*(json.dumps(one, indent=1) for one in (declared(stack), by_construct)))
    assert by_construct == declared(stack), words
    write_yaml(stack, store_of(stack))  # by Construct, too, and the stack file has the volumes
    ok(stack.up("--expect-no-changes"))
    assert by_construct == declared(stack)
    assert not written.exists()
    write_yaml(stack, store_of(stack, f", properties: {{{given}}}"))
    stack.config_file.write_text(bare)
    ok(stack.up("--expect-no-changes"))
    said = stack.destroy()
    assert_failed(said, "REFUSED. Nothing was deleted", "not approved", "used by", "waiting costs", "sweepctl finish")
    assert len(stack.volume_contents()) == 2
    digest = re.search(r"sha256:[0-9a-f]{64}", stack.sweepctl("approve").text)
    assert digest is not None
    ok(stack.sweepctl("approve", digest[0]))
    assert "approval" in stack.config_file.read_text()
    assert "approval" not in written.read_text()
    ok(stack.up())
    ok(stack.destroy())
    assert stack.volume_contents() == []
