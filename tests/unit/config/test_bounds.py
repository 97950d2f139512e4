"""A stack config is read within bounds of time, depth and memory, and what it holds is shown so that it can be seen."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.file import parse_document
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError
from tests.unit.config.helpers import GOOD, broken, load, refusal, write

BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" if i else "a0: &a0 [x]\n" for i in range(12))
BEYOND = [
    ("a: " + "[" * 2000 + "]" * 2000 + "\n", "line 1: a[0][0][0][0][0][0][0]…: more than 50 nested lists or mappings"),
    ("a: " + "[" * 200_000, "line 1: a[0]"),
    ("x: 1\na:\n" + "".join(f"{' ' * n}k:\n" for n in range(1, 900)), "line 52: a.k.k.k.k.k.k.k…: more than 50"),
    (f"x:\n  big: {'9' * 5000}\n", "line 2: x.big: a number of 5,000 digits; the most is 400. For text, quote it"),
    (f"x: {{big: [0x{'f' * 5000}]}}\n", "line 1: x.big[0]: a number of 5,002 digits"),
    (BOMB, "line 6: a5[3]: aliases stand for more than 100,000 values"),
    ("a: *b\n", "line 1: a: not valid YAML: found undefined alias"),
    ("a: 1\nb: \x07\n", "line 2: not valid YAML"),
]


@pytest.mark.parametrize(("text", "said"), BEYOND, ids=[said for _, said in BEYOND])
def test_what_is_beyond_the_bounds_is_refused_with_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    """By both readers: the one that loads, and the one that edits."""
    before = time.process_time()
    (tmp_path / "Pulumi.yaml").write_text("stackConfigDir: stacks\n")
    write(tmp_path, text)
    for read in (lambda: StackConfig.load(tmp_path, "x"), lambda: StackFile.locate(tmp_path, "x").sweep()):
        with pytest.raises(ConfigError) as caught:
            read()
        assert f"Pulumi.x.yaml, {said}" in str(caught.value)
    assert time.process_time() - before < 3


def test_the_project_file_has_the_same_bounds(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: " + "[" * 2000)
    with pytest.raises(ConfigError, match=r"Pulumi.yaml, line 2: runtime\[0\]"):
        StackFile.locate(tmp_path, "x")


def test_a_file_that_is_not_utf_8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("stackConfigDir: stacks\n")
    path = write(tmp_path, "")
    path.write_bytes(b"config:\n  a: \xff\n")
    for read in (lambda: StackConfig.load(tmp_path, "x"), lambda: StackFile.locate(tmp_path, "x").sweep()):
        with pytest.raises(ConfigError, match=r"Pulumi.x.yaml, line 2: can't be read: byte 0xff is not UTF-8"):
            read()


def test_a_file_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        StackConfig.load(tmp_path, "x")


def test_aliases_within_the_bounds_are_read() -> None:
    assert parse_document("a: &a [1, 2]\nb: [*a, *a]\n", "f").data["b"] == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            f"a: [{', '.join(map(str, range(1000)))}], b: [{', '.join(map(str, range(1000)))}], lr: [1, 2], seed: [1]",
            "line 11 cells.grid 1,000 x 1,000 x 2 x 1 = 2,000,000 cells, and 100,000 is the most: split the sweep",
        ),
        (", ".join(f"a{i}: [1, 2, 3]" for i in range(400)), "x … = about 10^190 cells"),
    ],
)
def test_a_matrix_is_counted_before_it_is_made(tmp_path: Path, new: str, said: str) -> None:
    before = time.process_time()
    assert said in " ".join(refusal(tmp_path, broken("lr: [0.1, 0.03], seed: [0, 1, 2]", new)).split())
    assert time.process_time() - before < 2


def test_thousands_of_mistakes_are_told_in_seconds(tmp_path: Path) -> None:
    many = "".join(f"      key{i}: 1\n" for i in range(11_000))
    top = "".join(f"top{i}: 1\n" for i in range(1_000))
    before = time.process_time()
    said = refusal(tmp_path, broken("    job:\n", f"    job:\n{many}") + top)
    assert "has 12000 mistakes" in said
    assert "job.key0" in said
    assert time.process_time() - before < 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("best.pt: {load: torch, finite: require, min: 50MB}", "{}"),
        ("candidates: [local]", "candidates: [{}]"),
        ("run: python", "secrets: [{}]\n      run: python"),
        ("box-0: {want: running}", "{}"),
    ],
)
def test_no_list_of_a_config_takes_the_square_of_its_length(tmp_path: Path, old: str, new: str) -> None:
    one = {"best.pt": "f{}.pt: {{load: json}}", "box-0: ": "B{}: {{}}"}.get(old[:7], "name{}")
    before = time.process_time()
    write(tmp_path, broken(old, new.replace("{}", ", ".join(one.format(i) for i in range(8_000)))))
    with contextlib.suppress(ConfigError):
        StackConfig.load(tmp_path, "x")
    assert time.process_time() - before < 8


def test_a_path_of_a_host_takes_no_time(tmp_path: Path) -> None:
    """An expression that could match it in 2^60 ways was tried in all of them."""
    text = broken("price_per_hour: 0.12", f"places: {{durable: '/{'a' * 60}:'}}")
    assert "expected a folder of the host" in refusal(tmp_path, text)


ODD = [
    ("max_price", '"max_\\u200bprice"', "max_\\u{200b}price  unknown key; did you mean"),
    ("max_price", '"m\\u0430x_price"', "m\\u{430}x_price  unknown key; did you mean"),
    ("max_price", '"m\\u0430x_price"', "(\\u{430} is CYRILLIC SMALL LETTER A)"),
    ("encryptionsalt", '"encryption\\u202esalt"', "encryption\\u{202e}salt  unknown key"),
    ("max_price", '"\\e]0;pwned\\a\\e[2Jx"', "\\u{1b}]0;pwned\\u{7}\\u{1b}[2Jx"),
    ("local: {price", '"lo\\u200dcal": {price', "overrides.lo\\u{200d}cal"),
    ("2.10", '"2\\u00a01"', 'max_price: "2\\u{a0}1"'),
]


@pytest.mark.parametrize(("old", "new", "said"), ODD, ids=[said for *_, said in ODD])
def test_what_cannot_be_seen_is_shown(tmp_path: Path, old: str, new: str, said: str) -> None:
    found = refusal(tmp_path, GOOD.replace(old, new, 1))
    assert " ".join(said.split()) in " ".join(found.split())
    assert all(char.isprintable() or char == "\n" for char in found)


SAID = [
    # (instead of, what is written, what the message says)
    ("pull_to: results/x", "pull_to: /", 'pull_to: "/" expected a folder of its own, such as results/mine'),
    ("pull_to: results/x", "pull_to: .", 'pull_to: "." expected a folder of its own'),
    ("pull_to: results/x", "pull_to: ./a/..", "expected a folder of its own"),
    ("pull_to: results/x", "pull_to: ../..", "expected a folder of its own"),
    ("pull_to: results/x", 'pull_to: "~/"', "expected a folder of its own"),
    ("pull_to: results/x", "pull_to: //", "expected a folder of its own"),
    ("--lr {lr} --seed", "{lr --seed", "job.run {lr has no closing brace, so no cell would get its value"),
    ("--out {out}", "--out {out", "job.run {out has no closing brace"),
    ("--lr {lr}", "--lr {lr:.3f}", "job.run {lr has no closing brace"),
    ("{seed}", "{rate}", "{rate}: no cell has such a parameter (there are: lr, seed, cell, checkpoints, name, out)"),
    ("cpu: 1", "disk: 0GB", 'job.resources.disk: "0GB" expected a size with its unit, such as 40GB, or'),
    ("cpu: 1", "disk: 0GB+", "and more than 0"),
    ("min: 50MB", "min: 0B", 'min: "0B" expected a size with its unit, such as 50MB, and more than 0'),
    ("lr: [0.1, 0.03]", "lr: [010]", 'cells.grid.lr[0] 010 is octal to some readers of YAML: write 10, or'),
    (
        "      grid:",
        "      exclude: [{lr: 0.1}, {lr: 0.03}]\n      grid:",
        "cells.exclude takes out every cell that grid and zip make",
    ),
    ("lr: [0.1, 0.03]", "lr: [a, A]", "write one of the values otherwise, or list these cells in cells.list"),
    ("    metrics:", "    mounts: {/c: {source: ./data}}\n    metrics:", "a folder of this machine can't be mounted"),
    (
        "encryptionsalt",
        "    approval: {receipt: x, actions: [], waivers_digest: y, by: me, at: 2026-11-21T09:00:00Z, "
        "expires: 2026-11-21T09:00:00Z}\nencryptionsalt",
        "approval.receipt: \"x\" expected sha256: and 64 hex digits, as sweepctl writes it",
    ),
    ("lr: [0.1, 0.03]", f"lr: ['{'9' * 5000}']", "expected 4,096 characters at most"),
    ("run: python", f"run: {'x' * 100_001}", "has 100,046 characters, and a shell takes 100,000; put it in a script"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), SAID, ids=[f"{new!r:.40}" for _, new, _ in SAID])
def test_a_message_names_the_cause(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in " ".join(refusal(tmp_path, broken(old, new)).split())


def test_the_largest_roster_loads(tmp_path: Path) -> None:
    axis = ", ".join(map(str, range(100)))
    text = broken("lr: [0.1, 0.03], seed: [0, 1, 2]", f"lr: [{axis}], seed: [{axis}]")
    assert len(load(tmp_path, text).roster.cells) == 10_000
