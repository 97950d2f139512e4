"""Each command of the engine that could end or forget something, before and after the approval.

The rows of the second table in docs/resources.md. One box, both cells sealed. *Locked*: neither pulled nor
approved. *Cleared*: verified, approved, brought up. In no row a locked box ends, and what a command shows is true.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi.automation as auto
import pytest

from tests.engine.commands import COMMAND_SECONDS, Result, assert_refused, engine, ok
from tests.engine.harness import ROOT, Stack
from tests.engine.one_box import Row

PAGE = ROOT / "docs" / "resources.md"
TEST = re.compile(r"`(tests/[\w/.]+\.py)::(test_\w+)`")
ASKED = ("destroy", "up", "refresh", "import", "preview")
OF_STATE = ("remove", "move", "protect", "rename", "repair", "taint", "unprotect", "untaint", "upgrade")
SHOWS = """
attach-debugger color config-file cwd debug diff disable-integrity-checking emoji expect-no-changes from
fully-qualify-stack-names generate-code generate-resources help json logflow logtostderr memprofilerate message neo
non-interactive otel-traces out override-env policy-pack policy-pack-config preview-only profiling properties provider
show-config show-full-output show-policy-remediations show-reads show-replacement-steps show-sames show-secrets
skip-config-validation skip-plugin-pre-install stack suppress-outputs suppress-permalink suppress-progress tracing urns
verbose yes
"""
"""Flags that change what is shown, how it is run, or which stack is meant, and nothing of what may end."""


class Asked(Row):
    """The box before or after its approval."""

    def __init__(self, stack: Stack, *, cleared: bool) -> None:
        super().__init__(stack)
        self.cleared = cleared
        self.box, self.gate, self.queue = (stack.urn(kind, "box-0") for kind in ("Box", "Gate", "Queue"))

    @property
    def word(self) -> str:
        """How the gate calls it."""
        return "cleared" if self.cleared else "locked"

    def there(self, result: Result, *, state: bool = False) -> None:
        """The box and all that is on it are what they were."""
        self.stack.assert_unchanged(self.before, result, state=state)

    def refused(self, result: Result) -> None:
        """Refused by the check, and nothing has changed."""
        assert_refused(result)
        self.there(result)

    def gone(self, result: Result) -> None:
        """Its end went through, by its approval, and is on record."""
        ok(result)
        assert self.stack.native_ids() == [], str(result)
        (birth,) = self.stack.births()
        assert birth["ended_at"], f"{birth}\n{result}"

    def by_its_gate(self, result: Result) -> None:
        """Cleared it is gone; locked it is refused."""
        (self.gone if self.cleared else self.refused)(result)

    def then_destroy(self) -> None:
        """What the command before left: a destroy still asks, and still ends what is cleared."""
        self.by_its_gate(self.stack.destroy())


@pytest.fixture(scope="session")
def small_cleared_once(small_once: Stack) -> Stack:
    """One box, verified, approved and brought up, as the moment `cleared`; the moment `locked` before that."""
    small_once.restore("finished")
    ok(small_once.up())  # what a refresh writes once is written now
    small_once.save("locked")
    ok(small_once.sweepctl("pull"))
    small_once.approve()
    ok(small_once.up())
    ok(small_once.up())
    small_once.save("cleared")
    return small_once


@pytest.fixture(params=["locked", "cleared"])
def asked(request: pytest.FixtureRequest, small_cleared_once: Stack) -> Iterator[Asked]:
    """The same sweep in one of the two states."""
    small_cleared_once.restore(request.param)
    yield Asked(small_cleared_once, cleared=request.param == "cleared")
    small_cleared_once.close()


def delete_steps(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of a preview as JSON: kind → the inputs of what would be deleted."""
    found = {}
    for step in document["steps"]:
        if step["op"] == "delete" and ":index:" in step["urn"]:
            found[step["oldState"]["type"].rpartition(":")[2]] = step["oldState"].get("inputs", {})
    return found


# what is shown


def test_a_destroy_preview_says_what_survives(small_finished: Stack) -> None:
    """Plain, as people and pulumi/actions read it: beside the engine's word `delete`, on the row itself."""
    shown = ok(small_finished.pulumi("destroy", "--preview-only")).out
    assert re.search(r"- +sweepstack:index:Volume durable delete .*volume durable survives a destroy", shown), shown
    assert re.search(r"- +sweepstack:index:Identity identity delete .*evidence survives a destroy, at file://", shown)
    stays = shown.partition("Diagnostics:")[2]  # a terminal's last screen has nothing of the rows
    for words in ("volume durable survives a destroy", "the evidence survives a destroy", "box box-0 LOCKED"):
        assert words in " ".join(stays.split()), shown
    assert "survives a destroy" not in ok(small_finished.pulumi("preview")).out.partition("Diagnostics:")[2]


@pytest.mark.proof
def test_a_destroy_preview_as_json(asked: Asked) -> None:
    document = ok(asked.stack.pulumi("destroy", "--preview-only", "--json")).json()
    shown = delete_steps(document)
    assert shown["Volume"]["live"]["survives"] == "survives a destroy, with all that is on it"
    assert any(place.startswith("file://") for place in shown["Box"]["live"]["survives"]), "the evidence"
    for kind in ("Box", "Gate"):
        assert shown[kind]["live"]["state"] == asked.word
    assert any(f"box box-0 {asked.word.upper()}" in said["message"] for said in document["diagnostics"])
    asked.then_destroy()


@pytest.mark.proof
def test_preview_as_json(asked: Asked) -> None:
    result = ok(asked.stack.pulumi("preview", "--json", "--refresh"))
    document = result.json()
    assert delete_steps(document) == {}
    assert set(document["changeSummary"]) == {"same"}, str(document["changeSummary"])
    assert any(f"box box-0 {asked.word.upper()}" in said["message"] for said in document["diagnostics"])
    asked.there(result, state=True)


@pytest.mark.proof
def test_preview_destroy_of_the_automation_api(asked: Asked) -> None:
    """`previewDestroy` and `destroy` of a program, in place of a person."""
    stack = asked.stack
    work = auto.LocalWorkspaceOptions(env_vars={**stack.env, "PULUMI_CONFIG_PASSPHRASE": ""})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", stack.env["PATH"])  # by which the API finds the engine
        made = auto.select_stack(stack_name=stack.name, work_dir=str(stack.checkout), opts=work)
        events: list[Any] = []
        said = made.preview_destroy(on_event=events.append)
        assert "volume durable survives a destroy" in said.stdout
        deletes = [one.resource_pre_event.metadata for one in events if one.resource_pre_event is not None]
        (volume,) = [
            one.old for one in deletes if one.type.endswith(":Volume") and str(one.op).lower().endswith("delete")
        ]
        assert volume.inputs["live"]["survives"]
        stack.assert_unchanged(asked.before)
        if asked.cleared:
            made.destroy()
            assert stack.native_ids() == []
        else:
            with pytest.raises(auto.CommandError, match="REFUSED"):
                made.destroy()
            stack.assert_unchanged(asked.before)


# plans


@pytest.mark.proof
def test_a_plan_carries_no_clearance(asked: Asked) -> None:
    """A plan binds the engine to what it showed, and clears nothing: each delete asks by itself."""
    stack, plan = asked.stack, asked.stack.base / "plan.json"
    ok(stack.pulumi("preview", "--save-plan", str(plan)))
    asked.there(ok(stack.up("--plan", str(plan))))
    stack.edit_config(lambda sweep: sweep["boxes"].update({"box-0": {"want": "gone"}}))
    plan.unlink()
    shown = stack.pulumi("preview", "--save-plan", str(plan))
    if not asked.cleared:
        asked.refused(stack.up("--plan", str(plan)) if plan.exists() else shown)
        return
    stack.save("planned")
    ok(stack.sweepctl("revoke"))
    result = stack.up("--plan", str(plan))
    assert result.rc != 0, str(result)
    asked.there(result)
    stack.restore("planned")
    result = ok(stack.up("--plan", str(plan)))
    assert stack.native_ids() == [], str(result)


@pytest.mark.proof
def test_a_strict_up_changes_nothing(asked: Asked) -> None:
    asked.there(ok(asked.stack.pulumi("up", "--strict")))
    asked.then_destroy()


# looks that write the state


@pytest.mark.proof
@pytest.mark.parametrize(
    "flags",
    [
        "--run-program",
        "--clear-pending-creates --skip-preview --parallel 1",
        "--skip-pending-creates --target GATE --target-dependents",
        "--exclude BOX --exclude-dependents",
    ],
)
def test_refresh(asked: Asked, flags: str) -> None:
    """It looks, forgets nothing, and what it writes opens nothing and takes no approval back."""
    words = [{"BOX": asked.box, "GATE": asked.gate}.get(word, word) for word in flags.split()]
    result = ok(asked.stack.pulumi("refresh", "--yes", *words))
    asked.there(result)
    assert [one["id"] for one in asked.stack.resources("Box")] == [asked.native_id], str(result)
    asked.then_destroy()


@pytest.mark.proof
def test_import_pending_creates_forgets_nothing_that_bills(asked: Asked) -> None:
    result = asked.stack.pulumi(
        "refresh", "--yes", "--import-pending-creates", asked.box, "--import-pending-creates", asked.native_id
    )
    asked.there(result)
    asked.then_destroy()


@pytest.mark.proof
@pytest.mark.parametrize("flags", ["--refresh --run-program", "--refresh=false --ignore-protect"])
def test_up(asked: Asked, flags: str) -> None:
    asked.there(ok(asked.stack.up("--expect-no-changes", *flags.split())))
    asked.then_destroy()


# what would end


@pytest.mark.proof
@pytest.mark.parametrize(
    "flags",
    [
        "--run-program --ignore-protect",
        "--exclude-protected --refresh=false --continue-on-error --parallel 32 --config sweepstack:note=1",
    ],
)
def test_destroy(asked: Asked, flags: str) -> None:
    asked.by_its_gate(asked.stack.destroy(*flags.split()))


@pytest.mark.proof
def test_destroy_remove_keeps_a_copy_of_the_stack_file(asked: Asked) -> None:
    """The engine takes the stack file away with the stack; its copy is in the evidence."""
    asked.by_its_gate(asked.stack.destroy("--remove"))
    assert asked.stack.config_file.exists() is not asked.cleared
    if asked.cleared:
        kept = [path.read_text() for path in (asked.stack.evidence / "stack-files").rglob("*") if path.is_file()]
        assert any("sweepstack:sweep" in text for text in kept)


@pytest.mark.proof
def test_destroy_of_a_target(asked: Asked) -> None:
    result = asked.stack.destroy("--target", asked.box, "--target-dependents")
    asked.by_its_gate(result)
    if asked.cleared:
        ok(asked.stack.destroy())


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["Box", "Gate", "Queue"])
def test_destroy_that_excludes(asked: Asked, kind: str) -> None:
    """What is left out stays in the state, and `status` says that it bills, whatever the engine's last line says."""
    stack = asked.stack
    result = stack.destroy("--exclude", stack.urn(kind, "box-0"))
    asked.there(result)
    assert [one["id"] for one in stack.resources("Box")] == [asked.native_id], str(result)
    assert json.loads(stack.sweepctl("status", "--json").out)["bills"] == "yes"
    asked.then_destroy()


@pytest.mark.proof
@pytest.mark.parametrize("flag", ["--replace", "--target-replace"])
def test_a_forced_replace_asks_first(asked: Asked, flag: str) -> None:
    """What was approved is the end of this very box: the one that is rented in its place, as was typed, is locked."""
    stack = asked.stack
    result = stack.up(flag, asked.box)
    if not asked.cleared:
        asked.refused(result)
        assert len(stack.births()) == 1
        return
    ok(result)
    (new,) = stack.native_ids()
    assert new != asked.native_id
    (box,) = stack.resources("Box")
    assert (box["id"], box["outputs"]["clearance"]) == (new, "locked")
    refused = stack.destroy()
    assert refused.rc != 0, str(refused)
    assert "REFUSED" in refused.text, str(refused)
    assert stack.native_ids() == [new]


@pytest.mark.proof
def test_up_that_excludes(asked: Asked) -> None:
    asked.there(ok(asked.stack.up("--exclude", asked.gate, "--exclude-dependents")))
    asked.then_destroy()


@pytest.mark.proof
def test_a_config_flag_ends_nothing_that_is_locked(asked: Asked) -> None:
    """`--config KEY=VALUE` is saved into the stack file; with `--config-path` the engine (3.259) drops the rest of KEY.
    The program then says what is missing."""
    result = asked.stack.up("--config", "sweepstack:sweep.boxes.box-0.want=gone", "--config-path")
    assert result.rc != 0, str(result)
    assert "is missing" in result.text, str(result)
    asked.there(result)
    asked.then_destroy()


@pytest.mark.proof
def test_another_config_file_ends_nothing_that_is_locked(asked: Asked) -> None:
    other = asked.stack.base / "other.yaml"
    text = asked.stack.config_file.read_text()
    asked.stack.edit_config(lambda sweep: sweep["boxes"].update({"box-0": {"want": "gone"}}))
    other.write_text(asked.stack.config_file.read_text())
    asked.stack.config_file.write_text(text)
    result = asked.stack.up("--config-file", str(other))
    (asked.gone if result.rc == 0 and asked.cleared else asked.there)(result)
    if not asked.cleared:
        assert result.rc != 0, str(result)


# the state


@pytest.mark.proof
@pytest.mark.parametrize("way", ["file", "parent"])
def test_import_takes_no_box_out_of_its_gate(asked: Asked, way: str) -> None:
    """Into its own stack under another name: nothing ends, and the destroy asks as before. What a person rented by hand
    is imported: tests/rented/test_imported.py."""
    stack = asked.stack
    listed = stack.base / "import.json"
    entry = {"type": "sweepstack:index:Box", "name": "stolen", "id": f"local:{asked.native_id}"}
    listed.write_text(json.dumps({"resources": [entry]}))
    named = ("sweepstack:index:Box", "stolen", asked.native_id)
    root = stack.state()["resources"][0]["urn"]
    words = {"file": ("--file", str(listed)), "parent": (*named, "--parent", f"root={root}")}[way]
    result = stack.pulumi("import", *words, "--yes", "--protect=false", "--generate-code=false")
    assert result.rc != 0, str(result)
    asked.there(result, state=True)
    asked.then_destroy()


@pytest.mark.proof
def test_state_move_takes_the_gate_along(asked: Asked) -> None:
    """In the other stack the same check is asked; this one does not end while its box bills elsewhere."""
    stack = asked.stack
    ok(stack.run("pulumi", "stack", "init", "other", "--no-select", "--non-interactive"))
    moved = ("--source", stack.name, "--dest", "other", asked.box, asked.queue, asked.gate)
    ok(stack.run("pulumi", "state", "move", "--yes", *moved, "--non-interactive"))
    said = stack.sweepctl("status")
    assert said.rc == 1, str(said)
    assert asked.native_id in said.text, str(said)
    result = stack.destroy()
    assert result.rc != 0, str(result)
    assert asked.native_id in result.text, str(result)
    asked.there(result)
    elsewhere = ("destroy", "--stack", "other", "--yes", "--skip-preview", "--non-interactive")
    asked.by_its_gate(stack.run("pulumi", *elsewhere))
    if asked.cleared:
        ok(stack.destroy())
        return
    result = ok(stack.up())  # the way back: it is adopted by its tag
    asked.there(result)
    assert [one["id"] for one in stack.resources("Box")] == [asked.native_id]
    assert len(stack.births()) == 1


@pytest.mark.proof
@pytest.mark.parametrize("flags", ["--all --force", "BOX --target-dependents"])
def test_state_delete_forgets_and_is_named(asked: Asked, flags: str) -> None:
    """The engine does not ask us. `status`, `audit` and the nightly job name the box; the next `up` adopts it."""
    stack = asked.stack
    words = [{"BOX": asked.box}.get(word, word) for word in flags.split()]
    ok(stack.run("pulumi", "state", "delete", *words, "--stack", stack.name, "--yes"))
    result = stack.destroy()
    asked.there(result)
    asked.names_what_bills()
    result = ok(stack.up())
    asked.there(result)
    assert len(stack.births()) == 1, str(result)


@pytest.mark.proof
def test_state_rename_ends_nothing_by_its_old_name(asked: Asked) -> None:
    """The program's box is another one for the engine then: it is adopted, and the delete of the other entry asks."""
    stack = asked.stack
    ok(stack.run("pulumi", "state", "rename", asked.box, "renamed", "--stack", stack.name, "--yes"))
    if asked.cleared:
        asked.gone(stack.destroy())
        return
    result = stack.up()
    assert result.rc != 0, str(result)
    asked.refused(result)
    asked.refused(stack.destroy())


@pytest.mark.proof
def test_state_verbs_that_forget_nothing(asked: Asked) -> None:
    stack = asked.stack
    for words in (("repair", "--stack", stack.name), ("upgrade",), ("taint", asked.box, "--stack", stack.name)):
        asked.there(ok(stack.run("pulumi", "state", *words, "--yes")))
    stack.edit_in_state("untaint", asked.box)
    stack.edit_in_state("protect", asked.box)
    result = stack.destroy()
    assert result.rc != 0, str(result)
    assert stack.native_ids() == [asked.native_id], "its gate may be gone, and the box is not"
    stack.edit_in_state("unprotect", asked.box)
    asked.then_destroy()


@pytest.mark.proof
def test_change_secrets_provider_keeps_sweep_and_approval(asked: Asked) -> None:
    """State and stack file are written anew with another salt; the sweep, its comments and its approval stay."""
    stack = asked.stack
    before = stack.config()
    ok(stack.run("pulumi", "stack", "change-secrets-provider", "passphrase", "--stack", stack.name))
    assert stack.config() == before
    asked.there(ok(stack.up("--expect-no-changes")))
    asked.then_destroy()


# the table


def flags_of(page: Path) -> set[str]:
    """The flags of a command, as the engine describes it, without those of every command."""
    text = page.read_text("utf-8").partition("## Options inherited")[0]
    return set(re.findall(r"^ +(?:-\w, )?--([\w-]+)", text, re.MULTILINE))


def rows() -> list[tuple[str, str]]:
    """The table: the first cell of each row, and its last."""
    section = PAGE.read_text("utf-8").partition("## Commands of the engine")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [(line.split(" | ")[0], line.split(" | ")[-1]) for line in lines]


def names_in(path: str) -> set[str]:
    """The tests of a file."""
    body = ast.parse((ROOT / path).read_text("utf-8")).body if (ROOT / path).is_file() else []
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_each_row_of_the_table_is_a_test_and_each_test_a_row() -> None:
    named = {first: TEST.findall(last) for first, last in rows()}
    assert len(named) > 15
    for first, tests in named.items():
        assert tests, f"{first}: no test"
        for path, name in tests:
            assert name in names_in(path), f"{first}: {path}::{name} is not there"
    here = "tests/engine/" + Path(__file__).name
    told = {name for tests in named.values() for path, name in tests if path == here}
    tested = {name for name in names_in(here) if name.startswith("test_")}
    assert tested - told == {
        "test_each_row_of_the_table_is_a_test_and_each_test_a_row",
        "test_each_flag_of_this_engine_is_in_the_table_or_only_shows",
    }


def test_each_flag_of_this_engine_is_in_the_table_or_only_shows(tmp_path: Path) -> None:
    """A new version of the engine with a flag that is in neither list turns this red. It writes down all of its help at
    once: each `--help` is a start of the engine."""
    told = set(re.findall(r"--([\w-]+)", " ".join(first for first, _ in rows())))
    subprocess.run([engine(), "gen-markdown", str(tmp_path)], check=True, timeout=COMMAND_SECONDS)
    commands = (*ASKED, *(f"state_{verb}" for verb in OF_STATE))
    found = {command: flags_of(tmp_path / f"pulumi_{command}.md") for command in commands}
    assert all(len(flags) > 1 for flags in found.values())
    unknown = {command: flags - told - set(SHOWS.split()) for command, flags in found.items()}
    assert {command: flags for command, flags in unknown.items() if flags} == {}
    listed = {page.stem.removeprefix("pulumi_state_") for page in tmp_path.glob("pulumi_state_*.md")}
    assert listed - {"get", "edit"} == set(OF_STATE), "another verb"
