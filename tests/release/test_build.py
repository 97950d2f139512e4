"""A release is built from the commit that is checked out: its files are whole, and say what they are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.lib.errors import SetupError
from scripts.release import check, facts
from scripts.release.build import NOTES, SUMS, build, packages
from scripts.release.plugin import SYSTEMS, archives
from sweepstack.core.version import VERSION
from tests.engine.package_project import ROOT, tree_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of a release."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    build(ROOT, folder)
    return folder


def test_a_release_is_whole(dist: Path, tmp_path: Path) -> None:
    check.whole(dist)
    names = {path.name for path in dist.iterdir()}
    plugins = {f"pulumi-resource-sweepstack-v{VERSION}-{system}.tar.gz" for system in SYSTEMS}
    of_package = {
        f"sweepstack-{VERSION}-py3-none-any.whl",
        f"sweepstack-{VERSION}.tar.gz",
        f"sweepstack-{VERSION}.cdx.json",
    }
    assert names == {*plugins, *of_package, NOTES, SUMS}
    done = subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=dist, check=False, timeout=60)
    assert done.returncode == 0
    with zipfile.ZipFile(dist / f"sweepstack-{VERSION}-py3-none-any.whl") as wheel:
        inside = set(wheel.namelist())
    assert {"sweepstack/profiles/local.md", "sweepstack/.pulumi-version", "components/program.py"} <= inside
    with tarfile.open(dist / f"sweepstack-{VERSION}.tar.gz") as sdist:
        top = {name.split("/")[1] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "sweepstack", "profiles"} <= top
    assert not {"tests", "bench", "stacks", "uv.lock"} & top

    (dist / NOTES).write_text((dist / NOTES).read_text() + "one more line\n")
    with pytest.raises(SetupError, match="is not the list of the files"):
        check.whole(dist)


def test_the_sbom_lists_what_the_lock_brings(dist: Path) -> None:
    document = json.loads((dist / f"sweepstack-{VERSION}.cdx.json").read_text())
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/sweepstack@{VERSION}"
    listed = {one["name"] for one in document["components"]}
    asked = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    assert {re.split(r"[^a-z0-9-]", one)[0] for one in asked} <= listed
    assert "pytest" not in listed
    assert document["components"][0]["externalReferences"][0]["hashes"]
    few = {"components": [{**one, "externalReferences": []} for one in document["components"]]}
    assert invalid(document | few) is None


@pytest.mark.proof  # all but the addresses stay in make test: the test above
def test_the_sbom_is_valid_with_an_address_of_each_package(dist: Path) -> None:
    """Of some thousand addresses of files one for each: the validator takes a sixth of a second to parse one."""
    document = json.loads((dist / f"sweepstack-{VERSION}.cdx.json").read_text())
    one_each = [{**one, "externalReferences": one["externalReferences"][:1]} for one in document["components"]]
    assert invalid(document | {"components": one_each}) is None


def invalid(document: object) -> object:
    from cyclonedx.schema import SchemaVersion  # three seconds, in each process that collects these tests
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document))


def test_the_version_stands_in_one_place() -> None:
    assert facts.version(ROOT) == VERSION
    assert PROJECT["dynamic"] == ["version"]
    code = [path for folder in ("sweepstack", "components", "scripts") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in code if f'"{VERSION}"' in path.read_text()] == ["version.py"]


@pytest.mark.parametrize(
    ("tag", "heading", "unreleased", "says"),
    [
        ("", "0.9.0 - 2026-12-01", "", []),
        ("v0.9.0", "0.9.0 - 2026-12-01", "", []),
        ("v0.9.1", "0.9.0 - 2026-12-01", "", ["the tag is v0.9.1"]),
        ("", "0.9.0", "- A line.", ["has no date", "under Unreleased are not folded"]),
    ],
)
def test_what_keeps_a_tree_from_being_published_is_said(
    tmp_path: Path, tag: str, heading: str, unreleased: str, says: list[str]
) -> None:
    (tmp_path / "sweepstack/core").mkdir(parents=True)
    (tmp_path / "sweepstack/core/version.py").write_text('VERSION = "0.9.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased\n\n{unreleased}\n\n## {heading}\n\n- It.\n")
    found = facts.missing(tmp_path, tag)
    assert len(found) == len(says)
    assert all(part in line for part, line in zip(says, found, strict=True))


@pytest.mark.parametrize("text", ['VERSION = "0.9.0rc1"', 'VERSION = "0.9"', 'VERSION = "01.0.0"', ""])
def test_a_version_that_python_and_the_engine_read_differently_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweepstack/core").mkdir(parents=True)
    (tmp_path / "sweepstack/core/version.py").write_text(text + "\n")
    with pytest.raises(SetupError, match="three numbers"):
        facts.version(tmp_path)


def test_the_plugins_archive_has_the_wheel_and_what_installs_it(tmp_path: Path) -> None:
    wheel = tmp_path / "sweepstack-0.9.0-py3-none-any.whl"
    wheel.write_bytes(b"of a wheel")
    made = archives(wheel, ["s3", "sign"], "0.9.0", 1_700_000_000, tmp_path)
    first = [path.read_bytes() for path in made]
    assert [path.read_bytes() for path in archives(wheel, ["s3", "sign"], "0.9.0", 1_700_000_000, tmp_path)] == first
    with tarfile.open(made[0]) as tar:
        assert {one.name: one.mode for one in tar} == {
            "PulumiPlugin.yaml": 0o644,
            "pulumi-resource-sweepstack": 0o755,
            "__main__.py": 0o644,
            "requirements.txt": 0o644,
            wheel.name: 0o644,
        }
        assert {(one.mtime, one.uid, one.uname) for one in tar} == {(1_700_000_000, 0, "")}
        requirements = tar.extractfile("requirements.txt")
        assert requirements is not None
        assert requirements.read() == f"./{wheel.name}[s3,sign]\n".encode()


@pytest.mark.proof  # that a release is built whole stays in make test: test_a_release_is_whole
def test_a_commit_gives_the_same_bytes_and_its_sdist_the_same_wheel(tmp_path: Path) -> None:
    build(ROOT, tmp_path / "dist")
    check.same(ROOT, tmp_path / "dist")
    with tarfile.open(tmp_path / "dist" / f"sweepstack-{VERSION}.tar.gz") as sdist:
        sdist.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    commit = ["git", "show", "--no-patch", "--format=%ct", "HEAD"]
    epoch = int(subprocess.run(commit, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout)
    (tmp_path / "from-source").mkdir()
    wheel, _ = packages(source, tmp_path / "from-source", epoch)
    assert wheel.read_bytes() == (tmp_path / "dist" / wheel.name).read_bytes()


@pytest.mark.proof  # that a wheel begins a project stays in make test: tests/engine/test_installed.py
def test_an_empty_environment_begins_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline_pip: Callable[[], None]
) -> None:
    offline_pip()
    packages(tree_of(tmp_path, "7.1.0"), tmp_path, 1_700_000_000)
    check.begin(tmp_path, "7.1.0")
    with pytest.raises(SetupError, match=r"says 'sweepctl 7\.1\.0', and 7\.2\.0 was built"):
        check.begin(tmp_path, "7.2.0")


@pytest.mark.proof  # the Containerfile itself stays in make test: test_pipeline.py
def test_the_parts_of_the_image_run_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline_pip: Callable[[], None]
) -> None:
    """`system` is Debian's own; the release's host is played by a curl that knows a small engine and its digest."""
    offline_pip()
    wheel, _ = packages(tree_of(tmp_path, "7.1.0"), tmp_path, 1_700_000_000)
    image, prefix = str(ROOT / "scripts/release/image"), tmp_path / "opt"
    subprocess.run(["sh", image, "package", str(prefix), str(wheel)], check=True, timeout=600)
    site = tmp_path / "site"
    (site / "pulumi").mkdir(parents=True)
    (site / "pulumi/pulumi").write_text("#!/bin/sh\necho v7\n")
    (site / "pulumi/pulumi").chmod(0o755)
    archive = shutil.make_archive(str(tmp_path / "engine"), "gztar", site)
    served = tmp_path / "served"
    served.mkdir()
    fake = tmp_path / "bin/curl"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\nfor one in "$@"; do last=$one; done\ncase $last in\n'
        f'*-checksums.txt) cat "{served}/sums" ;;\n'
        f'*) while [ "$1" != -o ]; do shift; done; cp "{archive}" "$2"; basename "$2" > "{served}/name" ;;\nesac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(fake.parent), os.environ["PATH"]]))

    def engine() -> subprocess.CompletedProcess[str]:
        words = ["sh", image, "engine", str(prefix)]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    (served / "sums").write_text(f"{'0' * 64}  another.tar.gz\n")
    assert engine().returncode != 0
    assert not (prefix / "bin/pulumi").exists()
    name = (served / "name").read_text().strip()
    (served / "sums").write_text(f"{'0' * 64}  {name}\n")
    assert engine().returncode != 0
    assert not (prefix / "bin/pulumi").exists()
    digest = subprocess.run(["sha256sum", archive], capture_output=True, text=True, check=True).stdout.split()[0]
    (served / "sums").write_text(f"{digest}  {name}\n")
    done = engine()
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([prefix / "bin/pulumi"], capture_output=True, text=True, check=True).stdout == "v7\n"
    assert not list(prefix.glob("*.tar.gz"))
    said = subprocess.run([prefix / "bin/sweepctl", "--version"], capture_output=True, text=True, check=True).stdout
    assert said == "sweepctl 7.1.0\n"


def test_the_module_says_what_is_wrong_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = [sys.executable, "-m", "scripts.release", "build", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path} has files already: remove it first\n")
