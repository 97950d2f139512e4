"""Set-up fetches the official command plugin where its host answers, and goes on without a word where it does not."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import command_plugin
from scripts.lib.console import Console
from scripts.lib.places import target
from sweepstack.provider.command import fallback_plugin, select
from tests.unit.setup.releases import Releases

ROOT = Path(__file__).resolve().parents[3]
SAYS = b"#!/bin/sh\necho official\n"


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    made = Releases()
    monkeypatch.setattr(command_plugin, "RELEASES", made.base + "v{version}/")
    monkeypatch.setattr(command_plugin, "MIRROR", made.base + "mirror/")
    yield made
    made.close()


def publish(releases: Releases, *, content: bytes | None = None, digest: str = "") -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in (("LICENSE", b"x"), (command_plugin.PROGRAM, SAYS)):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    system, machine = target()
    name = f"pulumi-resource-command-v{command_plugin.VERSION}-{system}-{machine.replace('x64', 'amd64')}.tar.gz"
    archive = content or buffer.getvalue()
    releases.files[name] = archive
    digest = digest or hashlib.sha256(archive).hexdigest()
    releases.files[f"pulumi-command_{command_plugin.VERSION}_checksums.txt"] = f"{digest}  {name}\n".encode()


def install(cache: Path) -> None:
    command_plugin.install(cache, Console(), threading.Event())


def test_it_is_fetched_checked_and_found(
    releases: Releases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(releases)
    install(tmp_path / "sweepstack")
    found = select.official({"XDG_CACHE_HOME": str(tmp_path), "PULUMI_HOME": str(tmp_path / "home")})
    assert found is not None
    assert subprocess.check_output([found]) == b"official\n"
    assert [path.name for path in found.parent.iterdir()] == [command_plugin.PROGRAM]
    assert "checksum verified" in capsys.readouterr().out
    releases.files.clear()
    install(tmp_path / "sweepstack")
    assert capsys.readouterr().out == "", "there already: nobody is asked"


def test_without_its_host_nothing_is_said(
    releases: Releases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path)
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("broken", ["digest", "cut"])
def test_what_is_broken_is_a_note_and_not_used(
    releases: Releases, tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    publish(releases, **({"digest": "0" * 64} if broken == "digest" else {"content": b"<html>"}))  # type: ignore[arg-type]
    install(tmp_path)
    assert "stand-in acts in its place" in capsys.readouterr().out
    assert not list(tmp_path.rglob("pulumi*"))


def test_one_version_everywhere() -> None:
    """The Python package, the official plugin that fits it, and what the stand-in stands for."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"pulumi-command=={command_plugin.VERSION}" in wanted
    assert command_plugin.VERSION == select.VERSION
    assert fallback_plugin.VERSION.startswith(f"{select.VERSION}+")
