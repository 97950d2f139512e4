"""What the engine makes of a release: a project by `pulumi new`, and the plugin out of its archive."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.release.plugin import archives
from sweepstack.cli.commands.init import new_files, project_name
from tests.engine.commands import ok
from tests.engine.package_project import ROOT, Project, build, empty_project
from tests.engine.test_schema import assert_whole, schema_of

pytestmark = pytest.mark.engine
PROGRAM = """\
import pulumi

options = pulumi.ResourceOptions(version="7.1.0")
pulumi.CustomResource("sweepstack:index:Identity", "it", {"project": "p", "stack": "s", "pullTo": "evidence"}, options)
"""
TEMPLATE = ROOT / "templates/sweepstack"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with empty_project(tmp_path) as made:
        made.env |= {"PULUMI_BACKEND_URL": f"file://{tmp_path}", "PULUMI_CONFIG_PASSPHRASE": ""}
        yield made


def test_pulumi_new_makes_the_project_that_init_writes(project: Project) -> None:
    words = ["new", str(TEMPLATE), "--generate-only", "--yes", "--name", "my-lab"]
    ok(project.run("pulumi", *words))
    files = new_files("my-lab", Path(".venv"), ROOT / "examples/digits")
    plugins = {f"plugins/pulumi-resource-{name}" for name in ("sweepstack", "command")}
    made = {str(path.relative_to(project.folder)) for path in project.folder.rglob("*") if path.is_file()}
    assert made == {*files, *plugins, "requirements.txt"}
    assert all(os.access(project.folder / name, os.X_OK) for name in plugins)
    for name, text in files.items():
        if name != "Pulumi.yaml":  # the engine writes that anew
            assert (project.folder / name).read_text() == text, name
    written = (project.folder / "Pulumi.yaml").read_text()
    assert "name: my-lab\n" in written
    assert "\ntemplate:" not in written
    assert project_name("my-lab") == "my-lab"


@pytest.mark.proof  # the preview of a project that init began: test_installed.py
def test_a_project_of_the_template_previews(project: Project, tmp_path: Path) -> None:
    project.make_environment()
    project.install(build(tmp_path, "7.1.0"))
    ok(project.run("pulumi", "new", str(TEMPLATE), "--generate-only", "--yes", "--force", "--name", "my-lab"))
    ok(project.run("pulumi", "stack", "init", "sweep-a"))
    assert "+ 8 to create" in ok(project.run("pulumi", "preview", "--stack", "sweep-a")).text


@pytest.mark.proof  # the plugin of a wheel, found by its folder: test_installed.py
def test_the_engine_installs_the_plugin_from_its_archive(project: Project, tmp_path: Path) -> None:
    """pip asks no network: what it would bring up to date is there, and what the wheel needs is this environment's."""
    wheel = build(tmp_path, "7.1.0")
    (archive, *_) = archives(wheel, ["s3"], "7.1.0", 1_700_000_000, tmp_path)
    empty = tmp_path / "wheels"
    empty.mkdir()
    for name in ("setuptools", "wheel"):
        with zipfile.ZipFile(empty / f"{name}-0.0.1-py3-none-any.whl", "w") as file:
            about = f"{name}-0.0.1.dist-info"
            file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
            file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{about}/RECORD", "")
    project.env |= {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(empty)}
    ok(project.run("pulumi", "plugin", "install", "resource", "sweepstack", "7.1.0", "--file", str(archive)))
    assert "sweepstack" in ok(project.run("pulumi", "plugin", "ls")).text
    (packages,) = (tmp_path / "home").glob(".pulumi/plugins/resource-sweepstack-v7.1.0/**/site-packages")
    shutil.copy(project.dependencies, packages)
    (plugin,) = (tmp_path / "home").glob(".pulumi/plugins/*/pulumi-resource-sweepstack")
    schema = schema_of(plugin, project.folder, project.env)
    assert_whole(schema)
    assert schema["version"] == "7.1.0"
    assert schema["pluginDownloadURL"] == "github://api.github.com/sweepstack/pulumi-sweepstack"

    project.make_environment()
    (project.folder / "Pulumi.yaml").write_text("name: my-lab\nruntime: python\n")
    (project.folder / "__main__.py").write_text(PROGRAM)
    ok(project.run("pulumi", "stack", "init", "dev"))
    steps = ok(project.run("pulumi", "preview", "--json")).json()["steps"]
    (made,) = [step["newState"] for step in steps if step["newState"]["type"] == "sweepstack:index:Identity"]
    assert made["inputs"]["pullTo"] == "evidence"
