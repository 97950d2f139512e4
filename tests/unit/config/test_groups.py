"""Artifacts that are folders and patterns, as a stack file names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.helpers import broken, load, refusal

LINE = "best.pt: {load: torch, finite: require, min: 50MB}"


def of_formats(line: str) -> Any:
    return pytest.param(line, marks=pytest.mark.needs_extension("formats"))


@pytest.mark.parametrize(
    "line",
    [
        of_formats("checkpoint-*/: {load: trainer}"),
        of_formats("model/: {load: hf, keys: [a.weight], finite: report}"),
        of_formats('"shards-*.tar": {load: webdataset, keys: [png]}'),
        of_formats('"runs/*/events.out.tfevents.*": {load: tensorboard}'),
        of_formats('"m-{lr}/": {load: folder}'),
        '"ck/{cell}-?.pt": {load: torch, finite: [state_dict]}',
        'ck/: {load: command, run: "python c.py {file}", trust: true}',
    ],
)
def test_what_is_taken(tmp_path: Path, line: str) -> None:
    (spec,) = load(tmp_path, broken(LINE, line)).artifact_specs()
    assert spec.path == line.partition(": {")[0].strip('"')


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("model/: {load: torch}", "torch is for a file, and model/ is a folder; for a folder: hf, adapter, trainer"),
        ("model: {load: hf}", "hf is for a folder: end its name with a slash, such as model/"),
        ('"**/best.pt": {load: torch}', "a pattern of * and ?, each within one part of the path"),
        ('"best[0-9].pt": {load: torch}', ""),
        ('"a//": {load: folder}', "a plain relative path"),
        ('"../*.pt": {load: torch}', "a path below the cell's {out}"),
        ("/: {load: folder}", "a plain relative path"),
        ('"*/../x/": {load: folder}', "a path below the cell's {out}"),
        ("model/: {load: folder, finite: [state_dict]}", "of a folder require or report"),
        ("model/: {load: folder}\n      model: {load: json}", "would be both a file and a folder"),
    ],
)
def test_what_is_refused(tmp_path: Path, line: str, words: str) -> None:
    if not words:  # a bracket alone is a name as others are
        load(tmp_path, broken(LINE, line))
        return
    assert words in refusal(tmp_path, broken(LINE, line))


def test_a_value_brings_no_pattern_in(tmp_path: Path) -> None:
    text = broken(LINE, '"m-{kind}/": {load: folder}').replace("seed: [0, 1, 2]", 'seed: [0], kind: ["a*"]')
    assert "a value with * or ? can't stand in the name of an artifact" in refusal(tmp_path, text)


@pytest.mark.needs_extension("formats")
def test_a_metrics_file_may_be_a_pattern_and_is_of_a_format(tmp_path: Path) -> None:
    events = 'file: "runs/*/events.out.tfevents.*"'
    metrics = load(tmp_path, broken("file: metrics.jsonl", events)).metrics
    assert metrics is not None
    assert metrics.file == "runs/*/events.out.tfevents.*"
    for line, words in (
        ("{file: runs/, x: step, y: loss}", "the name of a file, or a pattern for it"),
        ('{file: "**/m.csv", x: step, y: loss}', "a pattern of * and ?, each within one part of the path"),
        ('{file: "tb/events.out.tfevents.*", x: epoch, y: loss}', "of tensorboard's files it is step"),
        ("{file: trainer_state.json, x: step, y: loss, stop_on_nan: true}", "reads one file of JSON lines, or a CSV"),
        ('{file: "a-*.csv", x: step, y: loss, stop_on_nan: true}', "reads one file of JSON lines, or a CSV"),
    ):
        assert words in refusal(tmp_path, broken("{file: metrics.jsonl, x: step, y: loss}", line)), line


def test_without_the_extension_its_loaders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.config.checks.module_of", lambda *_: None)
    said = refusal(tmp_path, broken(LINE, "best.gguf: {load: gguf}"))
    assert "gguf belongs to the extension `formats`, which is not installed here" in said
    load(tmp_path, broken(LINE, "best.pt: {load: torch}"))
