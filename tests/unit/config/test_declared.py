"""A sweep that the program declares: it stands beside the stack file, and is read, edited and refused like one."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml  # type: ignore[import-untyped]
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime import rpc

from components.construct import plain
from components.from_config import load_config
from sweepstack.config.declared import declared_path, read_declared, text_of, write_declared
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.model import SweepConfig
from sweepstack.config.own_files import own_files
from sweepstack.config.stack_config import StackConfig, StoreConfig, load_any
from sweepstack.core.spelling import camel, of_model
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profiles
from tests.unit.cli.test_stackfile import word
from tests.unit.config.helpers import GOOD, write

SWEEP = yaml.safe_load(GOOD)["config"]["sweepstack:sweep"]
BARE = "encryptionsalt: v1:abc\n"
OTHERS = "encryptionsalt: v1:abc\nconfig:\n  other:key: 1 # a person's\n"
STORE = {"platform": "local", "volumes": {"kept": {"size": "1GB"}}, "pullTo": "results/v"}


def outside(value: Any) -> Any:
    """As a program spells it: names of ours in camelCase, names of people as they are."""
    people = {"env", "grid", "artifacts", "boxes", "overrides"}
    if not isinstance(value, dict):
        return value
    return {
        camel(key): {name: outside(one) for name, one in inner.items()} if key in people else outside(inner)
        for key, inner in value.items()
    }


INPUTS = outside(SWEEP)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack whose file has no sweep."""
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nruntime: yaml\nstackConfigDir: stacks\n")
    write(tmp_path, BARE)
    monkeypatch.setattr(pulumi, "get_stack", lambda: "x")
    monkeypatch.setattr(pulumi.Config, "get_object", lambda *_: None)
    monkeypatch.setattr("components.screen.say", lambda *_: None)
    return tmp_path


def file_of(project: Path) -> StackFile:
    return StackFile.locate(project, "x")


def declared_file(project: Path) -> Path:
    return project / "stacks" / "Program.x.yaml"


def test_what_a_program_gives_is_the_sweep_that_a_stack_file_would_be(project: Path) -> None:
    assert "maxPrice" in INPUTS
    assert "pricePerHour" in INPUTS["overrides"]["local"]
    by_program = load_config(project, "sweep", INPUTS)
    text = declared_file(project).read_text()
    assert text.startswith("# Written by")
    assert yaml.safe_load(text)["config"]["sweepstack:sweep"] == SWEEP
    declared_file(project).unlink()
    write(project, GOOD)
    by_file = StackConfig.load(project, "x")
    assert isinstance(by_program, StackConfig)
    assert by_program.model_dump() == by_file.model_dump()
    assert by_program.roster.digest == by_file.roster.digest


def test_a_protocol_without_an_order_gives_one_file() -> None:
    """The order of a grid's axes is in the names of cells: with another one, each `up` would train all of it again."""
    choose = random.Random(0)

    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: shuffled(value[key]) for key in choose.sample(list(value), len(value))}

    texts = {text_of("sweepstack:sweep", of_model(SweepConfig, shuffled(INPUTS))) for _ in range(20)}
    assert len(texts) == 1


def test_it_is_written_when_it_changed_and_goes_when_the_program_declares_nothing(project: Path) -> None:
    load_config(project, "sweep", INPUTS)
    file = declared_file(project)
    assert not write_declared(file_of(project).path, file.read_text())
    write(project, GOOD)
    load_config(project, "sweep", None)
    assert not file.exists()
    write(project, BARE)
    with pytest.raises(ConfigError, match="is missing"):
        load_config(project, "sweep", None)


def test_a_mistake_is_named_with_its_file_and_key_and_nothing_is_written(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"stacks/Program\.x\.yaml has 1 mistake") as caught:
        load_config(project, "sweep", INPUTS | {"maxPrice": "a lot"})
    assert "max_price" in str(caught.value)
    assert not declared_file(project).exists()


@pytest.mark.parametrize("key", ["approval", "placement", "accept_facts"])
def test_a_program_gives_nothing_that_commands_write(project: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: sweepctl writes it into the stack file"):
        load_config(project, "sweep", INPUTS | {key: {}})


def test_more_than_machines_write_is_refused_beside_it(project: Path) -> None:
    load_config(project, "sweep", INPUTS)
    write(project, BARE + "config:\n  sweepstack:sweep:\n    candidates: [local]\n    max_price: 3\n")
    with pytest.raises(ConfigError, match=r"stacks/Pulumi\.x\.yaml has 2 mistakes") as caught:
        load_any(project, "x")
    assert re.search(
        r"line 5 +max_price +the program declares this sweep \(stacks/Program\.x\.yaml\)", str(caught.value)
    )
    write(project, BARE + "config:\n  sweepstack:store: {platform: local}\n")
    with pytest.raises(ConfigError, match="a stack holds one of the two"):
        load_any(project, "x")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("placement: {platform: 3}", r"line 4 +placement\.\w+"),
        (
            "accept_facts: {nowhere.verbs: {month: 2026-11, accepted: 2026-11-29}}",
            r"line 4 +accept_facts\.nowhere\.verbs",
        ),
    ],
)
def test_a_mistake_in_what_commands_write_is_named_in_the_stack_file(project: Path, key: str, line: str) -> None:
    """Not in the program's, which has no such line. What is wrong in both is told of one file after the other."""
    load_config(project, "sweep", INPUTS)
    text = declared_file(project).read_text()
    declared_file(project).write_text(text.replace("candidates:\n", "candidates:\n    - elsewhere\n"))
    write(project, BARE + f"config:\n  sweepstack:sweep:\n    {key}\n")
    with pytest.raises(ConfigError, match=r"^stacks/Pulumi\.x\.yaml has \d mistakes?") as caught:
        load_any(project, "x")
    assert re.search(line, str(caught.value))
    assert "elsewhere" not in str(caught.value)
    write(project, BARE)
    with pytest.raises(ConfigError, match=r"^stacks/Program\.x\.yaml has \d mistakes?"):
        load_any(project, "x")


def test_an_acceptance_that_nothing_needs_is_named_in_the_stack_file(project: Path) -> None:
    load_config(project, "sweep", INPUTS)
    fact = f"{INPUTS['candidates'][0]}.kind"
    entry = f"{{{fact}: {{month: 2026-11, accepted: 2026-11-29}}}}"
    write(project, BARE + f"config:\n  sweepstack:sweep:\n    accept_facts: {entry}\n")
    config = load_any(project, "x")
    assert isinstance(config, StackConfig)
    with pytest.raises(ConfigError, match=rf"^stacks/Pulumi\.x\.yaml: accept_facts\.{fact}: "):
        resolve_fleet(config, load_profiles(config.candidates))


@pytest.mark.parametrize("before", [BARE, OTHERS])
def test_an_approval_stands_in_the_stack_file_and_goes_without_a_trace(project: Path, before: str) -> None:
    load_config(project, "sweep", INPUTS)
    write(project, before)
    file, declared = file_of(project), declared_file(project).read_text()
    assert file.approval() is None
    assert file.write_approval(word())
    assert file.approval() == word()
    config = load_any(project, "x")
    assert config.approval == word()
    assert set(config.raw) == {"approval"}, "what the engine reads in the stack file"
    assert file.sweep()["job"] == SWEEP["job"]
    assert declared_file(project).read_text() == declared
    assert file.write_approval(None)
    assert yaml.safe_load(file.path.read_text()) == yaml.safe_load(before)
    assert "null" not in file.path.read_text()
    assert file.approval() is None


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda file: file.write_want("box-0", "gone"), "boxes: {box-0: {want: gone}}"),
        (lambda file: file.write_drop("lr0.1-seed0", "bad"), "cells: {drop: {lr0.1-seed0: bad}}"),
        (lambda file: file.write_pull_to("s3://lab/x"), "pullTo: s3://lab/x"),
    ],
)
def test_an_edit_of_the_sweep_says_which_line_to_write(project: Path, edit: Any, line: str) -> None:
    load_config(project, "sweep", INPUTS)
    before = [path.read_text() for path in (file_of(project).path, declared_file(project))]
    with pytest.raises(ConfigError, match="Write into the program, and bring it up: ") as caught:
        edit(file_of(project))
    assert str(caught.value).endswith(line)
    assert before == [path.read_text() for path in (file_of(project).path, declared_file(project))]


def test_volumes_are_declared_alike(project: Path) -> None:
    config = load_config(project, "store", STORE)
    assert isinstance(config, StoreConfig)
    assert file_of(project).is_store
    assert file_of(project).of_store().sweep()["pull_to"] == "results/v"
    with pytest.raises(ConfigError, match=r"no config\.sweepstack:sweep"):
        file_of(project).sweep()


def test_its_file_is_no_code_of_a_job(project: Path) -> None:
    load_config(project, "sweep", INPUTS)
    assert any(str(declared_file(project)).startswith(begin) for begin in own_files(project))
    assert declared_path(Path("a/Pulumi.x.yaml")) == Path("a/Program.x.yaml")
    assert read_declared(Path("a/stack.yaml"), "stack.yaml") is None


SECRET = {rpc._special_sig_key: rpc._special_secret_sig, "value": "hidden"}
OUTPUT = {rpc._special_sig_key: rpc._special_output_value_sig}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"env": {"KEY": SECRET}}, r"job\.env\.KEY is a secret"),
        ({"env": {"KEY": OUTPUT | {"value": "hidden", "secret": True}}}, r"job\.env\.KEY is a secret"),
        ({"run": OUTPUT}, r"job\.run is not known before another resource"),
        ({"secrets": ["A", rpc.UNKNOWN]}, r"job\.secrets\[1\] is not known"),
    ],
)
def test_a_secret_and_what_is_not_known_yet_are_refused_by_their_key(value: Any, says: str) -> None:
    with pytest.raises(SweepstackError, match=says) as caught:
        plain(value, "job")
    assert "hidden" not in str(caught.value)


def test_plain_inputs_pass_as_they_were_written() -> None:
    """Whole numbers too: over the wire each number is a fraction."""
    request = Struct()
    request.update({"job": {"slots": 2, "x": 0.5, "on": True}, "axis": [0, 1e-4], "text": "2"})
    found = plain(MessageToDict(request), "")
    assert repr(found["job"]["slots"]) == "2"
    assert found == {"job": {"slots": 2, "x": 0.5, "on": True}, "axis": [0, 1e-4], "text": "2"}
    assert plain({"run": OUTPUT | {"value": "a", "dependencies": []}}, "") == {"run": "a"}


def test_a_file_of_the_program_with_a_key_twice_is_refused_as_a_stack_file_is(tmp_path: Path) -> None:
    """After a merge by hand. Neither of the two values is taken in silence."""
    stack = tmp_path / "Pulumi.t.yaml"
    declared_path(stack).write_text("config:\n  sweepstack:sweep:\n    pull_to: a\n    pull_to: b\n")
    with pytest.raises(ConfigError, match=r"stacks/Program\.t\.yaml, line 4: this key stands twice"):
        read_declared(stack, "stacks/Pulumi.t.yaml")
