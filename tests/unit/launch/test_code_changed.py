"""Code that was edited on the box: no cell is verified with a digest that is not what ran (hosts.md S3)."""

from __future__ import annotations

import json
import os

import pytest

from sweepstack.core.workdir import collect
from sweepstack.launch import ship
from sweepstack.launch.launch import SetupFailed
from sweepstack.onbox.common import box_layout
from tests.unit.launch.support import TRAIN, Site


@pytest.fixture
def edited(site: Site) -> Site:
    """One cell is sealed; then a person appends a line to the job's script on the box."""
    site.launch("one")
    site.drained()
    with (site.root / box_layout.code_dir(collect(site.job).digest) / "train.sh").open("a") as script:
        script.write("echo DRIFTED\n")
    return site


def test_no_cell_runs_it_and_the_next_up_ships_it_again(edited: Site) -> None:
    with pytest.raises(SetupFailed, match=r"nothing was started with this code: train\.sh on this box is not what was"):
        edited.launch("one", "two")
    edited.drained()
    assert edited.states() == {"one": "sealed"}
    edited.launch("one", "two")
    edited.until_state("sealed", "two")
    assert any("shipping it again" in line for line in edited.said)
    code = edited.root / box_layout.code_dir(collect(edited.job).digest)
    assert (code / "train.sh").read_text() == TRAIN
    assert (code / "train.sh.found-changed").read_text() == TRAIN + "echo DRIFTED\n"
    edited.drained()
    edited.launch("one", "two", "three")
    edited.until_state("sealed", "three")


def test_each_change_is_kept_once(edited: Site) -> None:
    code = edited.root / box_layout.code_dir(collect(edited.job).digest)
    for text in ("two\n", "three\n", "two\n"):
        (code / "train.sh").write_text(text)
        ship._replace(edited.channel, f"{box_layout.code_dir(collect(edited.job).digest)}/train.sh", b"shipped", 0o755)
    found = {path.name: path.read_text() for path in code.glob("train.sh*")}
    assert found == {"train.sh": "shipped", "train.sh.found-changed": "two\n", "train.sh.found-changed-2": "three\n"}


def test_a_pinned_version_comes_back_from_the_evidence(edited: Site) -> None:
    code = collect(edited.job).digest
    (edited.job / "train.sh").write_text(TRAIN + "# newer\n")
    with pytest.raises(SetupFailed):
        edited.launch("one", "two", pins={"two": code})
    edited.drained()
    edited.launch("one", "two", pins={"two": code})
    edited.until_state("sealed", "two")
    assert edited.journal.cells["two"].code == code


def test_a_box_of_an_older_version_gets_the_list_of_its_files(site: Site) -> None:
    site.hold("one")
    site.launch("one")
    path = box_layout.shipped_list(collect(site.job).digest)
    listed = site.channel.read(path)
    (site.root / path).unlink()
    site.launch("one")
    assert site.channel.read(path) == listed


def test_a_box_learns_where_its_logins_find_the_command_that_ends_its_bill(site: Site) -> None:
    """hosts.md S1: `shutdown` was in /usr/sbin, and the runner's PATH had no sbin."""
    site.hold("one")
    done = site.launch("one", when_drained={"native": "off", "command": "sh -c true"})
    told = json.loads(site.channel.read(box_layout.SPEC))["when_drained"]
    assert (told["path"], done.notes) == (os.environ["PATH"], ())
    done = site.launch("one", when_drained={"native": "off", "command": "no-such-command now"})
    assert "it has no no-such-command on the PATH of its logins" in done.notes[0]
