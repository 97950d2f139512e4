"""What the job is given of its cells' parameters, by the real shell; and what of it is refused in a new sweep."""

from __future__ import annotations

import json
import random
import shlex
import subprocess
from pathlib import Path

import pytest

from sweepstack.config.checks import is_changed, places
from sweepstack.onbox.runner.environment import fill
from tests.unit.config.helpers import GOOD, load

RUN, GRID = "python train.py --lr {lr} --seed {seed} --out {out}", "grid: {lr: [0.1, 0.03], seed: [0, 1, 2]}"
SHOW = 'show() { for a in "$@"; do printf "<%s>" "$a"; done; cat; }\nx=7\nset -f\nIFS=\n'
"""What `$(…)` prints is not split, so that what changes is the work of the quotes alone."""


def sh(command: str, folder: Path) -> tuple[int, bytes]:
    done = subprocess.run(
        ["/bin/sh", "-c", SHOW + command], capture_output=True, cwd=folder, stdin=subprocess.DEVNULL, timeout=60
    )
    return done.returncode, done.stdout


def arrives(command: str, value: str, folder: Path) -> bool | None:
    """Whether the shell hands on `value` as it does a plain word; None where that word does not get there at all."""
    code, plain = sh(fill(command, {"p": "PLAIN"}, shlex.quote), folder)
    if code or b"PLAIN" not in plain:
        return None
    return sh(fill(command, {"p": value}, shlex.quote), folder)[1] == plain.replace(b"PLAIN", value.encode())


def told(command: str, value: str) -> bool:
    return any(place != "word" and is_changed(value, place) for _, place in places(command))


@pytest.mark.parametrize(
    ("command", "value", "right"),
    [
        ("show --p {p}", "it's $(echo a) `b` [x]", True),
        ("show --p={p}/{p} # '", "a b", True),
        ('show "--p {p}"', "adam", True),
        ("show '--p {p}'", "lr=1e-4,/data/x.yaml", True),
        ('show --p "{p}"', "a b", False),
        ("show --p '{p}'", "a b", False),
        ('show "layers={p}"', "[64,64]", False),
        ('show "{p}"', "$(echo hi)", False),
        ('show "{p}"', "", False),
        ("sh -c 'echo {p}'", "a  b", False),
        ("sh -c 'printf %s \"$0\"' {p}", "a  b", True),
        ('show "$(printf %s {p})"', "a  b", True),
        ('show "`printf %s {p}`"', "a  b", True),
        ('show "`printf %s {p}`"', "a`b", False),
        ("show <<E\n{p}\nE\nshow {p}", "a b", False),
        ("show <<-'E F'\n{p}\n\tE F\n", "a b", False),
        ("show <<E {p}\nit's\nE\nshow {p}", "a b", True),
        ("show \\{p}", "a b", False),
        ("show a#'{p}'", "a b", False),
        ("show # it's\nshow {p}", "a b", True),
        ("show ${y:-{p}} $((1 << 2)) {p}", "a", True),
        ('show "${y:-"it\'s"}" {p}', "a b", True),
        ('show "${y:-it\'s {p}}"', "a b", False),
        ("show \\;#'{p}'", "a b", False),
        ("case x in x) show {p};; esac", "a b", True),
        ("show '' # {p}\nshow {p}", "a\nshow b", False),
    ],
)
def test_a_value_that_the_shell_would_change_is_told(command: str, value: str, right: bool, tmp_path: Path) -> None:
    assert arrives(command, value, tmp_path) is right
    assert told(command, value) is not right


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("((x<<2))\nshow {p}", "word"),
        ("for ((i = 0; i < (1 << 3); i++)); do\nshow {p}\ndone", "word"),
        ("(show <<E\n{p}\nE\n)", "here-document"),
        ("((show <<E\n{p}\nE\n) )", "here-document"),
    ],
)
def test_a_shift_of_bash_is_no_here_document(command: str, place: str) -> None:
    assert places(command) == [("p", place)]


@pytest.mark.proof  # in make test: test_a_value_that_the_shell_would_change_is_told
def test_no_command_changes_a_value_untold(tmp_path: Path) -> None:
    pieces = [
        "{p}",
        "{p}",
        "'",
        "'",
        '"',
        '"',
        "`",
        "$(",
        "(",
        ")",
        "${y:-",
        "}",
        "\\",
        "#",
        " ",
        "\n",
        "show ",
        "--o=",
    ]
    pieces += ["<<E\n", "\nE\n", "a", "$((1+", "))", "$x ", ";", "<<-'E'\n", "x\n", "case a in a) ", ";; esac"]
    values = ["adam", "a b", "it's", "$(echo hi)", "`echo`", "a\nb", '"q"', "a\\b", "é", "x#y", "", "*", "[6,4]"]
    draw, looked, right = random.Random(27), 0, 0
    while looked < 1500:
        command = "show " + "".join(draw.choice(pieces) for _ in range(draw.randint(1, 9)))
        value = draw.choice(values)
        found = arrives(command, value, tmp_path) if "{p}" in command else None
        if found is None:
            continue
        looked, right = looked + 1, right + found
        assert found or told(command, value), (command, value)
    assert right > 700


def refused(folder: Path, run: str, cells: str = GRID, *, env: str = "") -> str:
    """What is refused of this `run` while no cell has started, in one line; "" where nothing is."""
    text = GOOD.replace(RUN, json.dumps(run)).replace(GRID, cells).replace("THREADS: 1", f"THREADS: 1{env}")
    found = load(folder, text).refused_new
    return " ".join(str(found).split()) if found is not None else ""


A_B = 'grid: {lr: [a, "a b"]}'
BY_NAME = "grid: {m: [l8, q7], seed: [0, 1]}\n      include: [{m: l8, lr: meta/L}, {m: q7, lr: q/Q}]"
TWO_LEFT_OUT = "base: {lr: x}\n      grid: {m: [l8, q7, z9], seed: [0]}\n      include: [{m: l8, lr: meta/L}]"


@pytest.mark.parametrize(
    ("run", "cells", "says"),
    [
        ('t --p "{lr}"', A_B, 'line 5 job.run {lr} stands in quotes; the value is quoted already (in lra-b_5e229e it'),
        ("t {lr} <<E\n{lr}\nE", A_B, "job.run {lr} stands in a here-document"),
        ("t --lr {{lr}}", A_B, "line 5 job.run {{lr}}: braces are not doubled here"),
        ("t --lr {lr}", GRID, "line 11 cells.grid.seed the job never gets seed: job.run does not use it"),
        ("t --lr {lr} # --seed {seed}", GRID, "cells.grid.seed the job never gets seed: job.run names it in a comment"),
        ("t --lr {lr} {{seed}}", GRID, "job.run {{seed}}: braces"),
        ("t {lr}", "zip: {lr: [1, 2], wd: [3, 4]}", "cells.zip.wd the job never gets wd"),
        ("t {lr}", "list: [{name: a, lr: 1, wd: 1}, {lr: 2}]", "cells.list[0].wd the job never gets wd"),
        ("t {lr}", "base: {w: 1}\n      grid: {lr: [1, 2]}\n      include: [{lr: 1, w: 2}]", "include[0].w the"),
        ("t {seed}", BY_NAME, "cells.grid.m the job never gets m"),
        ("t {seed} {lr}", TWO_LEFT_OUT, "cells.grid.m the job never gets m"),
        ("t {lr}", 'grid: {lr: ["1e-4", 0.0001]}', "cells.grid lr=1e-4 and cells.grid lr=0.0001 are one cell"),
    ],
)  # fmt: skip
def test_what_does_not_reach_the_job_is_told_with_line_key_and_fix(
    run: str, cells: str, says: str, tmp_path: Path
) -> None:
    assert says in refused(tmp_path, run, cells)


@pytest.mark.parametrize(
    ("run", "cells"),
    [
        (RUN, GRID),
        ('t --lr "{lr}" \'{seed}\' "{out}/{cell}"', GRID),
        ('t \'{"lr":{lr},"in":{"seed":{seed}}}\' "{ x: {lr}}" ${HOME} {a,b}', GRID),
        ("t --lr { {lr} } {seed}", GRID),
        ("t {lr} {seed}", BY_NAME),
        ("t <<E\n{lr} {seed}\nE", GRID),
        ("t", "base: {lr: 1, seed: 2}\n      list: [{name: a}, {name: b}]"),
        ("t --in it's {seed} {lr}", GRID),  # no shell takes it: said by the job's log
    ],
)
def test_what_reaches_it_is_left_alone(run: str, cells: str, tmp_path: Path) -> None:
    assert refused(tmp_path, run, cells) == ""


def test_the_environment_is_a_way_to_the_job(tmp_path: Path) -> None:
    """The fix that the message names, with a value that no quotes in `run` would bring."""
    env = ', LR: "{lr}"'
    assert refused(tmp_path, 't --p "$LR"', A_B, env=env) == ""
    assert "braces are not doubled" in refused(tmp_path, "t {lr}", A_B, env=', LR: "{{lr}}"')
