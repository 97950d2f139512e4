"""The installed wheel: `sweepctl init`, the whole loop, and a later version that takes it over."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.commands import Result, engine, ok, run
from tests.engine.test_schema import assert_whole, schema_of

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]
IN_THE_WHEEL = (
    ".pulumi-version",
    "README.md",
    "pyproject.toml",
    "components",
    "examples",
    "profiles",
    "scripts",
    "sweepstack",
)
STACK = "sweep-a"


@dataclass
class Project:
    """A folder of a user who has the package in a virtual environment, and the engine on PATH."""

    folder: Path
    env: dict[str, str]

    def run(self, *argv: str) -> Result:
        return run(argv, cwd=self.folder, env=self.env)

    def install(self, wheel: Path) -> None:
        words = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
        ok(self.run(str(self.folder / ".venv" / "bin" / "python"), "-m", *words))


def build(into: Path, version: str) -> Path:
    """A wheel of this tree's files, as that version. Needs no network: the builder is in this environment."""
    tree = into / f"tree-{version}"
    for name in IN_THE_WHEEL:
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        tree.mkdir(parents=True, exist_ok=True)
        copied(ROOT / name, tree / name)
    project = tree / "pyproject.toml"
    project.write_text(re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text()))
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(words, cwd=tree, check=True, capture_output=True, timeout=120)
    return into / f"sweepstack-{version}-py3-none-any.whl"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """An empty folder with a virtual environment: what sweepstack depends on is this environment's, nothing of ours."""
    folder = tmp_path / "my lab"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=folder, check=True, timeout=120)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    env = {
        "PATH": os.pathsep.join([str(folder / ".venv" / "bin"), str(engine().parent), os.environ["PATH"]]),
        "HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'backend'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "NO_COLOR": "1",
    }
    for name in ("home", "backend"):
        (tmp_path / name).mkdir()
    made = Project(folder, env)
    yield made
    run(["pkill", "-KILL", "-f", str(tmp_path)], cwd=tmp_path, env=env)


def begin(project: Project, tmp_path: Path) -> None:
    """Install a wheel and write the first project with it."""
    project.install(build(tmp_path, "7.1.0"))
    ok(project.run("sweepctl", "init"))
    assert (project.folder / "Pulumi.yaml").read_text().startswith("name: my-lab\n")
    assert ok(project.run("sweepctl", "--version")).out == "sweepctl 7.1.0\n"


def test_a_wheel_begins_a_project_whose_engine_finds_the_plugin(project: Project, tmp_path: Path) -> None:
    begin(project, tmp_path)
    schema = schema_of(project.folder / ".venv" / "bin" / "pulumi-resource-sweepstack", tmp_path, project.env)
    assert_whole(schema)
    assert schema["version"] == "7.1.0"
    again = project.run("sweepctl", "init")
    assert again.rc == 1
    assert "Pulumi.yaml" in again.err
    assert "there already, so nothing was written" in again.err
    ok(project.run("pulumi", "stack", "init", STACK))
    assert "+ 8 to create" in ok(project.run("pulumi", "preview", "--stack", STACK)).text


@pytest.mark.proof  # the loop from a checkout: test_loop.py; states of older versions: tests/golden
def test_the_loop_of_a_wheel_and_of_its_next_version(project: Project, tmp_path: Path) -> None:
    begin(project, tmp_path)
    stack = project.folder / "stacks" / f"Pulumi.{STACK}.yaml"
    text = stack.read_text().replace("epochs: 20", "epochs: 1")
    stack.write_text(text.replace("lr: [0.1, 0.03], seed: [0, 1, 2]", "lr: [0.1], seed: [0, 1]"))
    ok(project.run("pulumi", "stack", "init", STACK))
    ok(project.run("pulumi", "up", "--stack", STACK, "--yes"))
    ok(project.run("sweepctl", "wait", "--stack", STACK, "--timeout", "200s"))
    refused = project.run("pulumi", "destroy", "--stack", STACK, "--yes")
    assert refused.rc != 0
    assert "REFUSED. Nothing was deleted." in refused.text
    checks = project.run("sweepctl", "doctor", "--stack", STACK, "--json").json()["checks"]
    assert [check for check in checks if check["verdict"] == "fail"] == []

    project.install(build(tmp_path, "7.2.0"))
    assert ok(project.run("sweepctl", "--version")).out == "sweepctl 7.2.0\n"
    preview = ok(project.run("pulumi", "preview", "--stack", STACK, "--expect-no-changes"))
    assert "0 of 2 cells verified" in preview.text
    ok(project.run("sweepctl", "pull", "--stack", STACK))
    verified = ok(project.run("sweepctl", "verify", "--stack", STACK, "--json")).json()
    ok(project.run("sweepctl", "approve", "--stack", STACK, "--receipt", verified["receipt"]))
    ok(project.run("pulumi", "up", "--stack", STACK, "--yes"))
    ok(project.run("pulumi", "destroy", "--stack", STACK, "--yes"))
    assert "everything that bills is known to a state" in ok(project.run("sweepctl", "audit")).text
    assert len(ok(project.run("sweepctl", "results", "--stack", STACK, "--json")).json()["cells"]) == 2


def test_in_a_checkout_there_is_nothing_to_begin(tmp_path: Path) -> None:
    said = run([str(ROOT / ".venv" / "bin" / "sweepctl"), "init"], cwd=tmp_path, env=dict(os.environ))
    assert said.rc == 1
    assert "this sweepctl is of a checkout, which is a project already" in said.err
    assert list(tmp_path.iterdir()) == []
