"""An exit code of 0 is no evidence: what a cell must have left behind to be sealed."""

from __future__ import annotations

import hashlib
import json
import os
from urllib.parse import unquote_to_bytes

import pytest

from sweepstack.onbox.runner.sealing import plain_name
from sweepstack.teardown.unclaimed import _escaped
from tests.onbox.harness import Box, alive, around

GOOD = "echo good > {out}/result.json; "


LACKING = [
    ("true", "artifact missing: result.json"),
    ("touch {out}/result.json", "artifact empty: result.json"),
    ("printf 123 > {out}/result.json", "artifact too small: result.json has 3 bytes, 4 are the least"),
    ("mkdir {out}/result.json", "artifact missing: result.json (a folder)"),
    ("echo 12345 > {out}/../../x; ln -s ../../x {out}/result.json", "result.json is a link to ../../x (not in a "),
    (
        "ln -s /etc/passwd {out}/result.json",
        "artifact result.json is a link to /etc/passwd (not in a folder of this",
    ),
    ("ln -s result.json {out}/result.json", "result.json is a link to result.json (it can't be read: Too many"),
    ("ln -s nothing {out}/result.json", "result.json is a link to nothing (nothing is there)"),
    ("mkdir {out}/d; ln -s d {out}/result.json", "result.json is a link to d (a folder)"),
    ("mkfifo {out}/result.json", "artifact result.json is a pipe: it has to be a file"),
    ("touch {out}/a; ln -s a {out}/result.json", "artifact empty: result.json"),
    ("rm -r {out}; ln -s /etc {out}", "is no folder any more, but a link to /etc"),
    ("rm -r {out}", "can't be read"),
]


def test_exit_code_of_0_without_the_artifacts_is_a_failure(box: Box) -> None:
    """Each way by a cell of its own, behind one that is sealed: else the first holds the others."""
    box.set(retries=0, artifacts=[{"path": "result.json", "load": "json", "min_bytes": 4}])
    box.add("good", "echo 12345 > {out}/result.json")
    cells = {f"a{number}": row for number, row in enumerate(LACKING)}
    for cell, (run, _) in cells.items():
        box.add(cell, run)
    box.run(code=1)
    for cell, (run, reason) in cells.items():
        (failure,) = box.events("cell-failed", cell)
        assert reason in failure["reason"], run
        assert (failure["exit_code"], failure["final"]) == (0, True), run
    assert [path.name for path in box.sealed("good").parent.iterdir()] == ["good"]


def test_all_that_is_missing_is_named_at_once(box: Box) -> None:
    box.set(retries=0, artifacts=[{"path": name, "load": "json"} for name in ("a.json", "b/c.json", "d.json")])
    box.add("a", "touch {out}/d.json")
    box.run(code=1)
    assert box.events("cell-failed")[0]["reason"] == (
        "artifact missing: a.json, b/c.json; there are: d.json (0 B); artifact empty: d.json"
    )


def test_what_the_files_alone_decide_is_not_trained_again_and_says_what_there_was(box: Box) -> None:
    box.set(retries=3)
    box.add("a", "printf 12345 > {out}/table.csv; for n in 1 2 3 4 5 6 7 8 9; do touch {out}/part-$n; done")
    box.run(code=1)
    (failure,) = box.events("cell-failed", "a")
    assert (failure["class"], failure["final"], failure["exit_code"]) == ("files", True, 0)
    assert failure["reason"].startswith("artifact missing: result.json; there are: part-1 (0 B), ")
    assert failure["reason"].endswith("part-8 (0 B) and 2 more")
    assert len(box.events("cell-started", "a")) == 1


def test_an_artifact_is_named_by_the_parameters_of_its_cell(box: Box) -> None:
    """Taken as it is written, it cost each cell two trainings, and failed all of them."""
    box.set(artifacts=[{"path": "{kind}/m-{lr}.json", "load": "json"}], metrics={"file": "{cell}.jsonl", "x": "step"})
    box.add(
        "a", "mkdir {out}/{kind}; echo 1 > {out}/{kind}/m-{lr}.json; touch {out}/{cell}.jsonl", kind="b c", lr=1e-05
    )
    box.add("b", "mkdir {out}/x; echo 1 > '{out}/x/m-{lr}.json'".replace("{lr}", "{{lr}}"), kind="x", lr=2)
    box.run(code=1)
    roles = {file.path: file.role for file in box.manifest("a").files}
    assert roles == {"a.jsonl": "metrics", "b c/m-1e-05.json": "artifact", "log.txt": "log"}
    assert box.events("cell-failed", "b")[0]["reason"].startswith(
        "artifact missing: x/m-2.json; there are: x/m-{2}.json"
    )


def test_failed_exit_with_all_artifacts_is_a_failure(box: Box) -> None:
    box.set(retries=0)
    box.add("a", GOOD + "exit 1")
    box.run(code=1)
    assert not box.sealed("a").exists()


def test_files_of_the_job_named_as_ours_are_sealed_under_another_name(box: Box) -> None:
    box.add("a", GOOD + "echo mine > {out}/log.txt; echo mine > {out}/manifest.json; echo said")
    box.run("a")
    assert {file.path: file.role for file in box.manifest("a").files} == {
        "log.out.txt": "extra",
        "log.txt": "log",
        "manifest.out.json": "extra",
        "result.json": "artifact",
    }
    assert (box.sealed("a") / "log.out.txt").read_text() == "mine\n"
    assert (box.sealed("a") / "log.txt").read_text().startswith("said\n")


ODD = {
    b"a\tb": "%_a%09b",
    b"a\nb": "%_a%0Ab",
    b"a\\b": "%_a%5Cb",
    b"a\377": "%_a%FF",
    b"%_a%09b": "%_%25_a%2509b",
    b"x\033[2J": "%_x%1B[2J",
    b"Best.pt": "Best.pt",
    b"best.pt": "%_best.pt",
    b"LOG.txt": "log.out.txt",
    "\u2028".encode() * 80: "",
    b" plain 50%, \xc3\xa4\xf0\x9f\x8e\x89 *?$`'": " plain 50%, \u00e4\U0001f389 *?$`'",
}


def test_a_name_that_linux_allows_is_sealed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """hosts.md S7: such a name failed the cell after its training, and it was trained twice."""
    names = [*ODD, b"deep\n/er\t/file"]
    makes = f"import os; out = os.fsencode(os.environ['SWEEPSTACK_OUT'])\nfor name in {names!r}:\n"
    makes += "    path = os.path.join(out, name); os.makedirs(os.path.dirname(path), exist_ok=True)\n"
    makes += "    open(path, 'wb').write(name)\n"
    box.code = box.ship({"make.py": makes})
    box.add("a", GOOD + "python make.py")
    box.run("a")
    files = {file.path: (box.sealed("a") / file.path).read_bytes() for file in box.manifest("a").files}
    told = json.loads((box.sealed("a") / "manifest.json").read_bytes())["names"]
    for name, sealed in {**ODD, b"deep\n/er\t/file": "%_deep%0A/%_er%09/file"}.items():
        if name == "\u2028".encode() * 80:  # 240 bytes, and three times as many escaped
            sealed = "%_" + hashlib.sha256(name).hexdigest()
        assert files[sealed] == name
        if sealed.startswith("%_"):
            assert unquote_to_bytes(told[sealed]) == name
        elif name != b"LOG.txt":
            assert sealed not in told
    taken = {"best.pt"}
    for name in names:
        path = os.fsdecode(name)
        assert plain_name(path, taken) in (path, *_escaped(path))  # what the count of unclaimed bytes takes for it


def test_a_file_of_an_earlier_attempt_is_no_artifact_of_this_one(box: Box) -> None:
    """A folder that is moved over keeps its files' times: what stands there was not written by this attempt."""
    first = "printf old > {out}/result.json; sleep 0.05; exit 1"
    then = "here=$(dirname {out}); rm -r {out}; mv $here/../1/out {out}"
    box.add("a", f"if [ $SWEEPSTACK_ATTEMPT = 1 ]; then {first}; else {then}; fi")
    box.run(code=1)
    failures = [failure["reason"] for failure in box.events("cell-failed", "a")]
    assert "artifact of an earlier attempt: result.json was not written by this one" in failures[1]


def test_a_file_that_is_copied_from_the_checkpoints_is_confirmed_by_that(box: Box) -> None:
    save = "printf kept > {checkpoints}/best.json; touch -d 2020-01-01 {checkpoints}/best.json; exit 1"
    again = "cp -p {checkpoints}/best.json {out}/result.json"
    box.add("a", f"if [ $SWEEPSTACK_ATTEMPT = 1 ]; then {save}; else {again}; fi")
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == "kept"


def test_sealed_copy_is_a_copy(box: Box) -> None:
    box.add("a", GOOD)
    box.run("a")
    source = box.home / "cells/a/1/out/result.json"
    assert source.stat().st_ino != (box.sealed("a") / "result.json").stat().st_ino
    source.write_text("")
    box.manifest("a")


def test_what_a_cell_leaves_running_is_ended_before_sealing(box: Box) -> None:
    """A writer in the background would go on changing what is being sealed."""
    box.set(grace_seconds=0.5)
    box.add("a", GOOD + "(for i in $(seq 6000); do echo x >> {out}/growing; sleep 0.01; done) & echo $! > {out}/pid")
    box.run("a")
    assert "growing" in box.manifest("a").doubts[0]
    assert not alive(int((box.sealed("a") / "pid").read_text()))


def test_a_cell_whose_processes_can_not_be_ended_is_not_sealed(box: Box) -> None:
    """One that hangs in a driver takes no signal: what it may still write makes every digest worth nothing."""
    deaf = """
        from sweepstack.onbox.common import processes
        from sweepstack.onbox.runner import ending
        ending.KILL_SECONDS = processes.KILL_SECONDS = 0.1
        processes._send = lambda process, number: None
    """
    box.add("a", GOOD + "sleep 60 &")
    box.run(code=1, script=around(box, deaf))
    (failure,) = box.events("cell-failed", "a")
    assert "processes that it left behind can't be ended" in failure["reason"]
    assert failure["final"]
    assert not box.sealed("a").exists()


WRITER = """
import sys, time
end, written = time.monotonic() + 60, 0
with open(sys.argv[1], "ab", buffering=0) as handle:
    while time.monotonic() < end:
        written += handle.write(b"x" * 9999)
        if written > 50_000_000:
            handle.truncate(30_000_000)
            written = 30_000_000
"""
"""Writes all the time, and never more than a minute and 50 MB: should the runner fail to end it, no disk fills."""


def test_file_that_changes_while_it_is_sealed_is_not_sealed(box: Box) -> None:
    """Written by what is not seen as the cell's; where that can be found, it is ended before the next try."""
    unseen = "from sweepstack.onbox.runner import remains\nremains.Children.may_remain = lambda *_: False"
    (box.root / "writer.py").write_text(WRITER)
    box.set(retries=0)
    write = f"setsid python {box.root}/writer.py {{out}}/result.json"
    box.add("a", f"{write} & while ! test $(stat -c %s {{out}}/result.json) -gt 20000000; do sleep 0.01; done")
    box.run(code=1, script=around(box, unseen))
    assert "changed while it was being sealed" in box.events("cell-failed", "a")[0]["reason"]
    assert list(box.processes(cells=True)) == []
