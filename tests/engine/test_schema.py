"""The package schema: the engine's own commands read it from the plugin, check it, and add it to a project."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from sweepstack.core.functions import READY, SHARES
from tests.engine.commands import ok, run

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]
PULUMI = str(ROOT / ".venv" / "bin" / "pulumi")
PLUGIN = ROOT / "sweepstack" / "provider" / "pulumi-resource-sweepstack"
METADATA = ("displayName", "publisher", "repository", "homepage", "license", "keywords", "description", "version")
INTERNAL = ("Identity", "Queue", "Gate")
DESCRIBED = ("inputProperties", "properties")
YAML_PROJECT = """\
name: adds
runtime: yaml
resources:
  it:
    type: sweepstack:Identity
    properties: {project: adds, stack: dev, pullTo: evidence}
"""


def schema_of(plugin: Path, folder: Path, env: dict[str, str]) -> Any:
    """The schema that the engine gets from a plugin, checked by the engine."""
    text = ok(run([PULUMI, "package", "get-schema", str(plugin)], cwd=folder, env=env)).out
    (folder / "schema.json").write_text(text)
    ok(run([PULUMI, "schema", "check", "schema.json"], cwd=folder, env=env))
    return json.loads(text)


def assert_whole(schema: Any) -> None:
    """It says whose it is, which SDKs are made of it, and what each input and output means."""
    assert [name for name in METADATA if not schema.get(name)] == []
    assert set(schema.get("language", {})) == {"csharp", "go", "nodejs", "python"}
    bare = [
        f"{token}.{name}"
        for token, resource in schema["resources"].items()
        for kind in DESCRIBED
        for name, value in resource[kind].items()
        if not value.get("description")
    ]
    assert bare == []


def test_the_engine_takes_the_schema_of_the_checkouts_plugin(tmp_path: Path) -> None:
    schema = schema_of(PLUGIN, tmp_path, {**os.environ, "PULUMI_HOME": str(tmp_path / "pulumi-home")})
    assert_whole(schema)
    for name in INTERNAL:
        assert schema["resources"][f"sweepstack:index:{name}"]["description"].startswith("Internal: ")
    assert {token.rpartition(":")[2] for token in schema["resources"]} == {*INTERNAL, "Box", "Volume", "Sweep", "Store"}
    assert schema["functions"].keys() == {SHARES, READY}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "__pycache__"}


def test_a_project_adds_the_checkouts_folder_as_a_package(tmp_path: Path) -> None:
    """In YAML: of the languages, the one whose host can be built here with what the command calls. The preview takes
    the plugin from that folder, and nothing is written there."""
    folder, project = PLUGIN.parent, tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text(YAML_PROJECT)
    env = {
        **os.environ,
        "PULUMI_HOME": str(tmp_path / "pulumi-home"),
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "",
    }
    before = names(folder), names(folder.parent)
    ok(run([PULUMI, "package", "add", str(folder)], cwd=project, env=env))
    (declared,) = (project / "sdks" / "sweepstack").iterdir()
    assert "name: sweepstack\n" in declared.read_text()
    assert yaml.safe_load((project / "Pulumi.yaml").read_text())["packages"] == {"sweepstack": str(folder)}
    ok(run([PULUMI, "stack", "init", "dev"], cwd=project, env=env))
    steps = ok(run([PULUMI, "preview", "--json"], cwd=project, env=env)).json()["steps"]
    (made,) = [step["newState"] for step in steps if step["newState"]["type"] == "sweepstack:index:Identity"]
    assert made["inputs"]["pullTo"] == "evidence"
    assert (names(folder), names(folder.parent)) == before
