"""Artifacts of several files on a box: a folder, or a pattern. What they mean is whole, the cell's own, and sealed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.groups import is_there, means, members, unit_of
from sweepstack.onbox.runner import sealing
from sweepstack.onbox.runner.sealing import Changed, FilesFailure, artifact_files
from tests.onbox.test_links import Try


@pytest.fixture
def attempt(tmp_path: Path) -> Try:
    one = Try(tmp_path)
    for name in (
        "checkpoint-1/model.bin",
        "checkpoint-1/deep/.meta",
        "checkpoint-20/model.bin",
        "shards-0.tar",
        "m.json",
    ):
        (one.out / name).parent.mkdir(parents=True, exist_ok=True)
        (one.out / name).write_text(name)
    return one


def roles(manifest: dict[str, Any], role: str = "artifact") -> list[str]:
    return [file["path"] for file in manifest["files"] if file["role"] == role]


@pytest.mark.parametrize(
    ("pattern", "path", "unit"),
    [
        ("model/", "model/a/b.json", "model/"),
        ("model/", "model", ""),
        ("model/", "models/a", ""),
        ("checkpoint-*/", "checkpoint-5/a", "checkpoint-5/"),
        ("checkpoint-*/", "checkpoint-5", ""),
        ("checkpoint-*/", "runs/checkpoint-5/a", ""),
        ("runs/*/events.*", "runs/a/events.1.h", "runs/a/events.1.h"),
        ("runs/*/events.*", "runs/a/b/events.1", ""),
        ("*.pt", ".hidden.pt", ""),
        (".*", ".hidden", ".hidden"),
        ("epoch=?.ckpt", "epoch=3.ckpt", "epoch=3.ckpt"),
        ("epoch=?.ckpt", "epoch=13.ckpt", ""),
        ("a+b(1).*", "a+b(1).pt", "a+b(1).pt"),
        ("x*", "x\n.pt", "x\n.pt"),
    ],
)
def test_what_a_pattern_means(pattern: str, path: str, unit: str) -> None:
    assert unit_of(pattern, path) == unit
    assert members(pattern, [path]) == ({unit: [path]} if unit else {})


@pytest.mark.parametrize(
    ("pattern", "path", "meant"),
    [
        ("log.csv", "log.csv", True),
        ("log.csv", "a/log.csv", False),
        ("runs/*/events.*", "runs/a/events.1", True),
        ("runs/*/events.*", "runs/events.1", False),
        ("model/", "model/a", False),
    ],
)
def test_what_means_a_file_itself(pattern: str, path: str, meant: bool) -> None:
    assert means(pattern, path) == meant


@pytest.mark.parametrize(
    ("artifact", "files"),
    [
        ("checkpoint-*/", ["checkpoint-1/deep/.meta", "checkpoint-1/model.bin", "checkpoint-20/model.bin"]),
        ("checkpoint-1/", ["checkpoint-1/deep/.meta", "checkpoint-1/model.bin"]),
        ("checkpoint-*/model.bin", ["checkpoint-1/model.bin", "checkpoint-20/model.bin"]),
        ("shards-*.tar", ["shards-0.tar"]),
    ],
)
def test_all_files_are_sealed_as_artifacts(attempt: Try, artifact: str, files: list[str]) -> None:
    assert roles(attempt.seal(artifact)) == files
    assert artifact_files(attempt.out, [{"path": artifact}, {"path": "gone.pt"}]) == ["gone.pt", *files]
    assert is_there(attempt.out, artifact)


@pytest.mark.parametrize(
    ("artifact", "reason"),
    [
        ("model/", "artifact missing: model/; there are: checkpoint-1/deep/.meta"),
        ("epoch-*/", "artifact missing: epoch-*/"),
        ("m.json/", "artifact missing: m.json/"),
        ("shards-??.tar", "artifact missing: shards-??.tar"),
        ("checkpoint-*.tar", "artifact missing: checkpoint-*.tar"),
    ],
)
def test_nothing_is_no_result(attempt: Try, artifact: str, reason: str) -> None:
    with pytest.raises(FilesFailure, match=r"artifact missing") as caught:
        attempt.seal(artifact)
    assert reason in str(caught.value)
    assert not is_there(attempt.out, artifact)


def test_an_empty_folder_or_file_is_none(attempt: Try) -> None:
    for path in attempt.out.glob("checkpoint-20/*"):
        path.write_text("")
    (attempt.out / "shards-1.tar").write_text("")
    with pytest.raises(FilesFailure, match=r"^artifact empty: checkpoint-20/$"):
        attempt.seal("checkpoint-*/")
    with pytest.raises(FilesFailure, match=r"^artifact empty: shards-1.tar$"):
        attempt.seal("shards-*.tar")


def test_links_out_fail_and_links_inside_are_no_second_copy(attempt: Try) -> None:
    (attempt.out / "checkpoint-last").symlink_to("checkpoint-20")
    assert roles(attempt.seal("checkpoint-*/"))[-1] == "checkpoint-20/model.bin"
    for target in ("/etc", "../../1/out", "shards-0.tar", "plots"):
        (attempt.out / "plots").mkdir(exist_ok=True)
        (attempt.out / "checkpoint-last").unlink()
        (attempt.out / "checkpoint-last").symlink_to(target)
        if target == "shards-0.tar":  # a link to a file is no folder, and no part of it
            attempt.seal("checkpoint-*/")
            continue
        with pytest.raises(FilesFailure, match="artifact checkpoint-last is a link to"):
            attempt.seal("checkpoint-*/")
    (attempt.out / "checkpoint-last").unlink()
    (attempt.out / "checkpoint-1/passwd").symlink_to("/etc/passwd")
    with pytest.raises(FilesFailure, match=r"artifact checkpoint-1/passwd is a link to /etc/passwd"):
        attempt.seal("checkpoint-*/")


def test_what_comes_while_it_is_sealed_is_noticed(attempt: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sealing.copy_all

    def late(*given: Any) -> Any:
        found = real(*given)
        (attempt.out / "shards-1.tar").write_text("late")
        return found

    monkeypatch.setattr(sealing, "copy_all", late)
    with pytest.raises(Changed, match=r"shards-1.tar"):
        attempt.seal("shards-*.tar")
    assert not os.listdir(attempt.cells)


def test_a_member_of_an_earlier_try_is_none_of_this(attempt: Try) -> None:
    with pytest.raises(FilesFailure, match=r"artifact of an earlier attempt: checkpoint-1/deep/\.meta"):
        attempt.seal("checkpoint-*/", since=2**62)
