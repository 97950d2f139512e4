"""What a manifest from a box may name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.evidence import manifest as reading
from sweepstack.evidence.manifest import ManifestRefused, manifest_digest, parse_manifest, path_problem
from sweepstack.onbox.common.canonical import canonical_json, digest_of

PARAMS = {"lr": 0.1}


def manifest(**changes: Any) -> bytes:
    """A manifest with one file, and these changes."""
    value = {
        "schema": 1,
        "identity": "sweep",
        "box": "box-0",
        "native_id": "local-a",
        "generation": 1,
        "cell": "a",
        "attempt": 1,
        "config_digest": digest_of({"name": "a", "params": PARAMS}),
        "params": PARAMS,
        "code": digest_of("code"),
        "argv": ["x"],
        "started_at": "2026-11-21T09:00:00Z",
        "sealed_at": "2026-11-21T09:00:01Z",
        "environment": {},
        "files": [{"path": "log.txt", "size": 1, "sha256": "0" * 64, "role": "log"}],
    }
    return canonical_json({**value, **changes}) + b"\n"


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"9" * 5000, b"[" * 900 + b"]" * 900])
def test_parameters_that_are_no_json_are_refused(value: bytes) -> None:
    """They come from a box: one cell is damaged, and the command goes on with the others."""
    data = manifest().replace(b'"params":{"lr":0.1}', b'"params":{"lr":' + value + b"}")
    with pytest.raises(ManifestRefused, match=r"its manifest is damaged: (not JSON|its parameters hold a number)"):
        parse_manifest(data, "sweep", "a")


def files(*paths: str) -> list[dict[str, Any]]:
    """File entries of these paths."""
    return [{"path": path, "size": 1, "sha256": "0" * 64, "role": "extra"} for path in paths]


def test_a_plain_manifest_is_read() -> None:
    assert parse_manifest(manifest(new_key=1), "sweep", "a").files[0].path == "log.txt"
    assert manifest_digest(manifest()) == digest_of(json.loads(manifest()))
    odd = "plots/best of \u00fc (1).png"
    assert parse_manifest(manifest(files=files(odd)), "sweep", "a").files[0].path == odd


def test_a_manifest_that_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_MANIFEST", len(manifest()) - 1)
    with pytest.raises(ManifestRefused, match="too large"):
        parse_manifest(manifest(), "sweep", "a")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a/./b",
        "a//b",
        "a/",
        "./a",
        "a\nb",
        "a\rb",
        "a\0b",
        "a\u2028b",
        "a\x1b[2Jb",
        "a\\..\\b",
        "C:\\a",
        "\ud800",
        "x" * 256,
        "/".join(["x"] * 600),
        "manifest.json",
        "Manifest.JSON",
    ],
)
def test_hostile_names_are_refused(path: str) -> None:
    data = manifest().replace(b'"path":"log.txt"', b'"path":' + json.dumps(path).encode())
    with pytest.raises(ManifestRefused):
        parse_manifest(data, "sweep", "a")


@pytest.mark.parametrize(
    "paths",
    [("a", "a"), ("a", "A"), ("dir/a", "DIR/A"), ("\u00e9", "e\u0301"), ("\u00df", "ss"), ("a", "a/b"), ("A/b", "a")],
)
def test_names_that_may_be_one_file_are_refused(paths: tuple[str, str]) -> None:
    with pytest.raises(ManifestRefused, match="names"):
        parse_manifest(manifest(files=files(*paths)), "sweep", "a")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"identity": "other"}, "of another sweep"),
        ({"cell": "b"}, "of another cell"),
        ({"params": {"lr": 0.2}}, "not those of its config digest"),
        ({"schema": 3}, "newer sweepstack .schema 3; this one knows 2"),
        ({"schema": 0}, "schema 0"),
        ({"files": [{"path": "a", "size": -1, "sha256": "0" * 64, "role": "extra"}]}, "damaged"),
        ({"files": [{"path": "a", "size": 1, "sha256": "zz", "role": "extra"}]}, "damaged"),
        ({"config_digest": "md5:1"}, "damaged"),
    ],
)
def test_a_manifest_of_something_else_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ManifestRefused, match=reason):
        parse_manifest(manifest(**changes), "sweep", "a")


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"[" * 100000, b"\xff\xfe"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestRefused):
        parse_manifest(data, "sweep", "a")


@given(st.text(min_size=1, max_size=40))
def test_a_name_that_passes_stays_inside(path: str) -> None:
    if path_problem(path):
        return
    parts = path.split("/")
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(parts)
    assert path.isprintable() or all(char not in path for char in "\0\n\r")
