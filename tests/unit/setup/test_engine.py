"""Where the engine comes from, and that nothing half-made or wrong is ever used as one."""

from __future__ import annotations

import fcntl
import hashlib
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import engine_build, engine_download
from scripts.lib import main as main_module
from scripts.lib.console import Console
from scripts.lib.engine import (
    CLI,
    EXEC,
    HOST,
    YAML_HOST,
    Recipe,
    cached,
    finish,
    on_path,
    sweep_leftovers,
    wants_yaml,
    yaml_host,
)
from scripts.lib.errors import Cancelled, SetupError
from scripts.lib.places import Places
from tests.unit.setup.conftest import Checkout, write_command
from tests.unit.setup.releases import Releases

VERSION = "3.259.0"
SAYS = "#!/bin/sh\necho v{version}\n"
EMPTY = "#!/bin/sh\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    root = tmp_path / "root"
    for name in ("cli", "language-python"):
        folder = root / "scripts" / "engine" / name
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text("module x\n\ngo 1.25.1\n")
        (folder / "go.sum").write_text("")
    (root / ".pulumi-version").write_text(VERSION + "\n")
    return Recipe.read(root)


def put_engine(folder: Path, version: str = VERSION, *, without: str = "") -> Path:
    for name, text in ((CLI, SAYS.format(version=version)), (HOST, EMPTY), (EXEC, EMPTY)):
        if name != without:
            write_command(folder / name, text)
    return folder


def path_of(*folders: Path) -> dict[str, str]:
    return {"PATH": ":".join([*map(str, folders), "/usr/bin", "/bin"])}


@pytest.mark.parametrize("version", ["3.259.0", "3.259.9", "3.300.1"])
def test_fitting_engine_on_path_is_taken(recipe: Recipe, tmp_path: Path, version: str) -> None:
    found, refused = on_path(recipe, path_of(put_engine(tmp_path / "a", version)))
    assert found is not None
    assert (found.cli, found.version, found.source, refused) == (tmp_path / "a" / CLI, version, "path", [])


@pytest.mark.parametrize("version", ["3.258.9", "2.300.0", "4.0.0", "nonsense"])
def test_other_versions_are_refused_by_name(recipe: Recipe, tmp_path: Path, version: str) -> None:
    found, refused = on_path(recipe, path_of(put_engine(tmp_path / "a", version)))
    assert found is None
    assert str(tmp_path / "a" / CLI) in refused[0]


def test_old_engine_does_not_hide_a_fitting_one(recipe: Recipe, tmp_path: Path) -> None:
    found, refused = on_path(recipe, path_of(put_engine(tmp_path / "a", "3.1.0"), put_engine(tmp_path / "b")))
    assert found is not None
    assert found.cli.parent == tmp_path / "b"
    assert len(refused) == 1


@pytest.mark.parametrize("missing", [HOST, EXEC])
def test_engine_without_its_python_host_is_refused(recipe: Recipe, tmp_path: Path, missing: str) -> None:
    found, refused = on_path(recipe, path_of(put_engine(tmp_path / "a", without=missing)))
    assert found is None
    assert HOST in refused[0]


def test_own_launcher_is_not_taken_for_an_engine(recipe: Recipe, checkout: Checkout) -> None:
    assert on_path(recipe, path_of(checkout.places.bin)) == (None, [])


def test_engine_without_its_seal_is_not_used(recipe: Recipe, tmp_path: Path) -> None:
    folder = put_engine(recipe.folder(tmp_path, "modules"))
    assert cached(recipe, tmp_path) is None
    finish(folder, recipe, "modules", path_of())
    found = cached(recipe, tmp_path)
    assert found is not None
    assert found.cli == folder / CLI
    (folder / EXEC).unlink()
    assert cached(recipe, tmp_path) is None


@pytest.mark.parametrize(("version", "without"), [("3.1.0", ""), (VERSION, HOST), (VERSION, EXEC)])
def test_wrong_engine_is_not_sealed(recipe: Recipe, tmp_path: Path, version: str, without: str) -> None:
    folder = put_engine(tmp_path / "made", version, without=without)
    with pytest.raises(SetupError):
        finish(folder, recipe, "modules", path_of())
    assert not (folder / "engine.json").exists()


@pytest.mark.parametrize(
    ("text", "is_yaml"),
    [
        ("name: a\nruntime: yaml\n", True),
        ("runtime:\n  name: yaml\n", True),
        ('runtime: {name: "yaml"}\n', True),
        ("runtime:\n  name: python\n", False),
        ("runtime: python\n# runtime: yaml\n", False),
        ("", False),
    ],
)
def test_a_project_in_yaml_is_seen(tmp_path: Path, text: str, is_yaml: bool) -> None:
    (tmp_path / "Pulumi.yaml").write_text(text)
    assert wants_yaml(tmp_path) is is_yaml
    assert not wants_yaml(tmp_path / "none")


def test_the_host_for_yaml_is_taken_where_there_is_one(tmp_path: Path) -> None:
    engine, own, other = put_engine(tmp_path / "a"), tmp_path / "own", tmp_path / "other"
    assert yaml_host(engine / CLI, own, path_of(other)) is None
    for folder in (other, own, engine):  # each before the one above
        write_command(folder / YAML_HOST, EMPTY)
        assert yaml_host(engine / CLI, own, path_of(other)) == folder / YAML_HOST


def test_new_pins_are_a_new_engine(recipe: Recipe, tmp_path: Path) -> None:
    (recipe.sources / "cli" / "go.sum").write_text("other\n")
    assert Recipe.read(tmp_path / "root").folder(tmp_path, "modules") != recipe.folder(tmp_path, "modules")


def test_leftovers_of_killed_runs_are_removed(recipe: Recipe, tmp_path: Path) -> None:
    left = tmp_path / VERSION / ".making-abc"
    left.mkdir(parents=True)
    put_engine(left)
    sweep_leftovers(tmp_path)
    assert list((tmp_path / VERSION).iterdir()) == []


# --- the official download, from a server on this machine ---


def archive(*, version: str = VERSION, evil: bool = False) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in ((CLI, SAYS.format(version=version)), (HOST, EMPTY), (EXEC, EMPTY), ("pulumi-watch", EMPTY)):
            info = tarfile.TarInfo(f"pulumi/{name}")
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
        if evil:
            link = tarfile.TarInfo("pulumi/pulumi-python-link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
            outside = tarfile.TarInfo("../../pulumi-python-outside")
            outside.size = 1
            tar.addfile(outside, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    made = Releases()
    monkeypatch.setattr(engine_download, "RELEASES", made.base + "v{version}/")
    monkeypatch.setattr(engine_download, "MIRROR", made.base + "mirror/")
    yield made
    made.close()


def fetch(recipe: Recipe, engines: Path) -> None:
    base = engine_download.reachable(recipe.version)
    assert base is not None
    engine_download.install(recipe, base, engines, path_of(), Console(), threading.Event())


def publish(releases: Releases, content: bytes, *, digest: str | None = None) -> None:
    name = engine_download.archive_name(VERSION)
    releases.files[name] = content
    digest = digest or hashlib.sha256(content).hexdigest()
    releases.files[f"pulumi-{VERSION}-checksums.txt"] = f"{digest}  {name}\n{'0' * 64}  other.tar.gz\n".encode()


def test_download_is_checked_and_used(recipe: Recipe, tmp_path: Path, releases: Releases) -> None:
    publish(releases, archive())
    fetch(recipe, tmp_path / "engines")
    found = cached(recipe, tmp_path / "engines")
    assert found is not None
    assert found.source == "download"
    names = {path.name for path in found.cli.parent.iterdir()}
    assert names == {CLI, HOST, EXEC, "engine.json"}


def test_wrong_checksum_leaves_nothing(recipe: Recipe, tmp_path: Path, releases: Releases) -> None:
    publish(releases, archive(), digest="0" * 64)
    with pytest.raises(SetupError, match="SHA-256"):
        fetch(recipe, tmp_path / "engines")
    assert list((tmp_path / "engines").rglob("*")) == [tmp_path / "engines" / VERSION]


def test_release_without_checksum_file_is_said(
    recipe: Recipe, tmp_path: Path, releases: Releases, capsys: pytest.CaptureFixture[str]
) -> None:
    releases.files[engine_download.archive_name(VERSION)] = archive()
    fetch(recipe, tmp_path / "engines")
    assert "no checksum file" in capsys.readouterr().out


def test_archive_that_its_checksum_file_does_not_list_is_refused(
    recipe: Recipe, tmp_path: Path, releases: Releases
) -> None:
    publish(releases, archive())
    releases.files[f"pulumi-{VERSION}-checksums.txt"] = b"abc  other.tar.gz\n"
    with pytest.raises(SetupError, match="does not list"):
        fetch(recipe, tmp_path / "engines")


@pytest.mark.parametrize(
    "content", [archive()[:100], b"<html>sorry</html>", archive(version="3.1.0")], ids=["cut", "page", "other version"]
)
def test_broken_download_leaves_nothing(recipe: Recipe, tmp_path: Path, releases: Releases, content: bytes) -> None:
    publish(releases, content)
    with pytest.raises(SetupError):
        fetch(recipe, tmp_path / "engines")
    assert cached(recipe, tmp_path / "engines") is None


def test_links_and_outside_names_are_not_unpacked(recipe: Recipe, tmp_path: Path, releases: Releases) -> None:
    publish(releases, archive(evil=True))
    fetch(recipe, tmp_path / "engines")
    found = cached(recipe, tmp_path / "engines")
    assert found is not None
    assert not (found.cli.parent / "pulumi-python-link").exists()
    assert not (tmp_path / "pulumi-python-outside").exists()


def test_host_without_the_version_is_not_reachable(releases: Releases) -> None:
    assert engine_download.reachable(VERSION) is None


# --- the build, by a go that only pretends ---

FAKE_GO = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:]
if words[:2] == ["env", "GOVERSION"]:
    print("go" + os.environ.get("FAKE_GO_VERSION", "1.26.0"))
elif words[0] == "list" and "-m" in words:
    print(os.environ["FAKE_SDK"])
elif words[0] == "list":
    print("go: downloading example.com/x v1"); print("fmt"); print(words[-1])
elif words[0] == "build":
    assert "-mod=readonly" in words and "-trimpath" in words and os.environ["CGO_ENABLED"] == "0"
    target = words[words.index("-o") + 1]
    if os.path.basename(target) == os.environ.get("FAKE_FAILS"):
        print("x.go:1: undefined: y"); sys.exit(1)
    said = os.environ.get("FAKE_SAYS", "v{VERSION}")
    with open(target, "w") as file:
        file.write("#!/bin/sh\\necho " + said + "\\n")
    os.chmod(target, 0o755)
"""


@pytest.fixture
def go_env(tmp_path: Path) -> dict[str, str]:
    write_command(tmp_path / "go" / "go", FAKE_GO)
    write_command(tmp_path / "sdk" / "python" / "cmd" / EXEC, EMPTY)
    write_command(tmp_path / "sdk" / "python" / "dist" / "pulumi-resource-pulumi-python", EMPTY)
    return {**path_of(tmp_path / "go"), "FAKE_SDK": str(tmp_path / "sdk")}


def no_uv() -> Path:
    raise SetupError("uv was asked for")


def build(recipe: Recipe, cache: Path, env: dict[str, str]) -> None:
    engine_build.install(recipe, cache, env, Console(), threading.Event(), no_uv)


def test_build_makes_a_whole_engine(
    recipe: Recipe, tmp_path: Path, go_env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    build(recipe, tmp_path / "cache", go_env)
    assert "this takes 5 to 8 minutes on 2 idle cores" in capsys.readouterr().out.splitlines()[0]
    found = cached(recipe, tmp_path / "cache" / "engine")
    assert found is not None
    assert found.source == "modules"
    assert (found.cli.parent / EXEC).is_file()


@pytest.mark.parametrize("broken", [{"FAKE_FAILS": CLI}, {"FAKE_FAILS": HOST}, {"FAKE_SAYS": "v3.1.0"}])
def test_broken_build_is_never_used(
    recipe: Recipe, tmp_path: Path, go_env: dict[str, str], broken: dict[str, str]
) -> None:
    with pytest.raises(SetupError):
        build(recipe, tmp_path / "cache", {**go_env, **broken})
    assert cached(recipe, tmp_path / "cache" / "engine") is None
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_failing_compiler_is_quoted(recipe: Recipe, tmp_path: Path, go_env: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="undefined: y"):
        build(recipe, tmp_path / "cache", {**go_env, "FAKE_FAILS": CLI})


def test_go_that_is_too_old_is_not_used(recipe: Recipe, tmp_path: Path, go_env: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="uv was asked for"):
        build(recipe, tmp_path / "cache", {**go_env, "FAKE_GO_VERSION": "1.24.9"})


@pytest.mark.parametrize("argv", [["--engine", "path", "--s3"], ["--engine", "download"]], ids=["S3 server", "engine"])
def test_builds_wait_for_each_other(
    recipe: Recipe, tmp_path: Path, releases: Releases, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    """They share Go and its cache, which the first to end removes: each must wait while another set-up builds."""
    root = tmp_path / "root"
    (root / "scripts" / "s3_server").mkdir()
    (root / "scripts" / "s3_server" / "go.mod").write_text("module x\n\ngo 1.25.1\n")
    places = Places(root, tmp_path / "cache", tmp_path / "bin")
    env = path_of(put_engine(tmp_path / "a"))
    setup = main_module.Setup(places, main_module.parse_arguments(argv), Console(), env)
    setup._uv_ready.set()  # there is none, so that a build that did not wait fails at once
    cancel = threading.Event()
    places.builds_lock.parent.mkdir(parents=True)
    with places.builds_lock.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        threading.Timer(0.3, cancel.set).start()
        with pytest.raises(Cancelled, match="waiting for another set-up"):
            setup._built_side(cancel)
    assert "another set-up is at work" in capsys.readouterr().out
