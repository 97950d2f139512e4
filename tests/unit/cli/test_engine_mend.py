"""What the engine refuses every command for is mended first: `status` and `finish` name that alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sweepstack.evidence.stack_copy import keep_stack_file
from tests.unit.cli.support import STACK, World


def test_a_folder_in_the_place_of_the_stack_file_goes_out_of_the_way_first(world: World) -> None:
    world.full()
    keep_stack_file(world.uri, world.file.path)
    text = world.file.path.read_text()
    world.file.path.unlink()
    world.file.path.mkdir()
    seen = world.run("status", "--json").json
    (named,) = seen["next"]
    assert any("is a folder, and the engine runs no command" in note for note in seen["notes"])
    assert len(seen["notes"]) == len(set(seen["notes"]))
    for arguments in (["finish"], ["finish", "--box", "box-0"]):
        refused = world.run(*arguments, "--json")
        assert (refused.code, refused.json["next"]) == (1, [named])
    assert world.calls() == []
    subprocess.run(named.split("    (")[0], shell=True, check=True)
    assert world.file.path.read_text() == text
    assert world.run("status", "--json").json["next"] != [named]


def test_without_a_copy_the_folder_goes_out_of_the_way_alone(world: World) -> None:
    world.full()
    world.file.path.unlink()
    world.file.path.mkdir()
    (named,) = world.run("status", "--json").json["next"]
    assert named.startswith(f"mv {world.file.path} {world.file.path}.folder    (no copy")


def test_a_state_that_refers_to_what_is_not_in_it_is_repaired_first(world: World) -> None:
    world.full()
    export = world.export()
    resources = export["deployment"]["resources"]
    (identity,) = [one["urn"] for one in resources if one["type"].endswith(":Identity")]
    for one in resources:
        if one["type"].endswith((":Box", ":Volume")):
            one |= {"dependencies": [identity], "propertyDependencies": {"identity": [identity]}}
    world.save(export)
    whole = world.run("status", "--json", fresh=False).json["next"]
    assert not any("state repair" in command for command in whole), "nothing is missing"
    export["deployment"]["resources"] = [one for one in resources if one["urn"] != identity]
    (world.engine / "state.json").write_text(json.dumps(export))
    seen = world.run("status", "--json", fresh=False).json
    (named,) = seen["next"]
    assert named.startswith(f"pulumi state repair --stack {STACK} --yes")
    assert any("refers to identity, which is not in it" in note for note in seen["notes"])
    refused = world.run("finish", "--json", fresh=False)
    assert (refused.code, refused.json["next"]) == (1, [named])
    assert world.calls() == []


def test_what_only_the_stack_file_approves_names_the_way_without_that_up(world: World) -> None:
    """The `up` that would clear it may not be able to run: a profile is lost, or `pull_to` names another folder."""
    *_, receipt = world.verified()
    assert world.run("approve", receipt).code == 0
    (alone,) = world.run("status", "--json").json["next"]
    (world.root / "job").rmdir()
    seen = world.run("status", "--json").json
    assert "no `pulumi up` goes through: job.workdir: job is not a folder" in seen["notes"]
    up, abandon = seen["next"]
    assert up.startswith(f"pulumi up --stack {STACK}    (clears")
    assert up == alone
    assert abandon.startswith(f"sweepctl give-up --stack {STACK} data/box-0 data/box-1 --reason")
    assert f"&& pulumi destroy --stack {STACK}" in abandon


@pytest.mark.parametrize("newer", [True, False])
def test_a_state_of_a_newer_version_takes_an_update_before_anything_else(world: World, newer: bool) -> None:
    """Only the engine's own words say it, above the last lines of `finish`: the way that gives up would fail, too."""
    *_, receipt = world.verified()
    assert world.run("approve", receipt).code == 0
    world.on("up", "exit 255")
    words = "a newer one wrote it. Next: git pull &&\\n  make setup" if newer else "another error"
    world.on("refresh", f"printf '%b' '{words}'; exit 255")
    refused = world.run("finish")
    assert refused.code == 1
    (first, *_) = [line for line in refused.err.splitlines() if line.startswith("next ")]
    assert ("git pull && make setup" in first) is newer, refused
    assert world.calls() == [f"up --stack {STACK} --yes --non-interactive"]


def test_a_cleared_sweep_whose_stack_file_is_torn_puts_it_back_before_the_destroy(world: World) -> None:
    *_, receipt = world.verified()
    assert world.run("approve", receipt).code == 0
    world.up()
    keep_stack_file(world.uri, world.file.path)
    world.file.path.write_bytes(world.file.path.read_bytes()[:100] + b"\0")
    back, end = world.run("status", "--json").json["next"]
    assert back.startswith("cp ")
    assert f" && sweepctl finish --stack {STACK}" in back
    assert end == f"pulumi destroy --stack {STACK}"


def test_a_stack_file_with_a_person_s_mistake_is_moved_aside_and_not_overwritten(world: World) -> None:
    *_, receipt = world.verified()
    assert world.run("approve", receipt).code == 0
    world.up()
    keep_stack_file(world.uri, world.file.path)
    edited = world.file.path.read_text() + "  a: [1,\n"
    world.file.path.write_text(edited)
    back, _ = world.run("status", "--json").json["next"]
    aside, copy, look = back.split(" && ")
    assert look.startswith(f"sweepctl status --stack {STACK}    "), "the sweep may have run half"
    assert aside == f"mv {world.file.path} {world.file.path}.unreadable"
    for typed in (aside, copy):
        subprocess.run(typed, shell=True, check=True)
    assert Path(f"{world.file.path}.unreadable").read_text() == edited
    assert world.run("status", "--json").json["next"] == [f"pulumi destroy --stack {STACK}"]


def test_what_was_moved_aside_earlier_is_not_overwritten(world: World) -> None:
    world.full()
    keep_stack_file(world.uri, world.file.path)
    earlier = Path(f"{world.file.path}.unreadable")
    earlier.write_text("mine")
    world.file.path.write_text(world.file.path.read_text() + "  a: [1,\n")
    (way,) = world.run("status", "--json").json["next"]
    aside = way.split(" && ")[0]
    assert aside == f"mv {world.file.path} {earlier}-2"
    subprocess.run(aside, shell=True, check=True)
    assert earlier.read_text() == "mine"


def test_a_stack_file_that_is_gone_is_put_back_before_a_finish_and_an_approval(world: World) -> None:
    """`finish` pulled and verified, and its approval was refused, with the copy at hand."""
    world.full()
    keep_stack_file(world.uri, world.file.path)
    text = world.file.path.read_text()
    world.file.path.unlink()
    (way,) = world.run("status", "--json").json["next"]
    copy = f"cp {world.evidence}/stack-files/{world.file.path.name} {world.file.path}"
    assert way == f"{copy} && sweepctl finish --stack {STACK}    (the last that was up)"
    assert world.run("pull").code == world.run("verify").code == 0
    assert world.run("status", "--json").json["next"] == [way]
    refused = world.run("approve", "--json")
    assert refused.code == 1
    assert [line.split(" --")[0] for line in refused.json["next"]] == [f"{copy} && sweepctl finish", "sweepctl give-up"]
    subprocess.run(copy, shell=True, check=True)
    assert world.file.path.read_text() == text
    assert world.run("status", "--json").json["next"] == [f"sweepctl approve --stack {STACK}"]


def test_where_pull_to_is_another_folder_it_is_said_and_what_gives_the_boxes_up_is_named(world: World) -> None:
    """No `pulumi up` goes through then, so it can't be the only way."""
    box = world.add("box-0")
    box.launch("lr0.1")
    box.alive(False)
    world.file.path.write_text(world.file.path.read_text().replace("pull_to: results/sweep-t", "pull_to: elsewhere"))
    seen = world.run("status", "--json").json
    assert any("until pull_to names the folder of the evidence again" in note for note in seen["notes"])
    assert seen["next"][0].startswith(f"pulumi up --stack {STACK}")
    assert "data/box-0" in seen["next"][-1]
