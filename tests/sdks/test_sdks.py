"""SDKs for four languages, made from the plugin's schema by the engine's own generators, and compiled.

`pulumi package gen-sdk` leaves the work to a language's host: the Python host that set-up can build is older than that,
and no module holds Node's. So main.go, beside this file, calls the generators in the engine's version; that of .NET is
in a module that the Go proxy does not serve, so dotnet/main.go calls the last one that it does.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scripts.lib import wheels
from scripts.lib.console import Console
from scripts.lib.engine_build import compile_package, fetch_modules, go_tools, oldest_go
from scripts.lib.places import Places
from tests.engine.commands import assert_failed, engine, ok, run
from tests.engine.test_schema import PLUGIN, schema_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.proof,  # the schema itself stays in make test: tests/engine/test_schema.py
    pytest.mark.timeout(2400),  # Go builds a part of the engine
]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REGISTRY = "https://registry.npmjs.org/"
RESOURCES = ("Box", "Gate", "Identity", "Queue", "Store", "Sweep", "Volume")
MODULE = "github.com/sweepstack/pulumi-sweepstack/sdk/go"


def generator(folder: Path, program: Path) -> Path:
    """The main.go of a folder as a command. Half a minute where Go has the engine's packages, minutes where it has
    none."""
    name = f"make-{program.name}"
    source, command, cancel = folder / f"{name}-source", folder / name, threading.Event()
    places, env, console = Places.of(ROOT, os.environ), dict(os.environ), Console()
    source.mkdir()
    for file in ("go.mod", "go.sum", "main.go"):
        shutil.copy(program / file, source)

    def uv() -> Path:
        pins = ROOT / "scripts" / "requirements-uv.txt"
        return wheels.find_uv(env) or wheels.install_uv(places.cache, pins, env, console, cancel)

    # A cache of the test's own: set-up removes its cache of Go whenever a build of it is through.
    oldest, cache = oldest_go(source), folder / "cache"
    go, go_env = go_tools(oldest, places.engine_sources, cache, env, console, cancel, uv)
    with console.step("generators of SDKs", "from Go modules") as step:
        total = fetch_modules(go, go_env, source, ".", step, cancel)
        compile_package(go, go_env, source, ".", command, "-s -w", total, step, cancel)
    return command


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of commands: no settings and no cache but the test's own."""
    home = tmp_path_factory.mktemp("home")
    return {
        **os.environ,
        "HOME": str(home),
        "PULUMI_HOME": str(home / "pulumi"),
        "PULUMI_BACKEND_URL": f"file://{home}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "npm_config_cache": str(home / "npm"),
    }


@pytest.fixture(scope="module")
def sdks(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> Path:
    """The folder with the SDKs `python`, `nodejs`, `go` and `dotnet`."""
    folder = tmp_path_factory.mktemp("sdks")
    schema_of(PLUGIN, folder, env)
    for program in (HERE, HERE / "dotnet"):
        ok(run([str(generator(folder, program)), "schema.json", "."], cwd=folder, env=env))
    return folder


def test_a_program_makes_a_resource_by_the_python_sdk(sdks: Path, tmp_path: Path, env: dict[str, str]) -> None:
    """In an environment of its own, with all that the SDK depends on from this one. A preview, so nothing is made."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=tmp_path, check=True, timeout=120)
    (packages,) = (tmp_path / ".venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), str(sdks / "python")]
    ok(run([sys.executable, *words], cwd=tmp_path, env=env))
    python = str(tmp_path / ".venv" / "bin" / "python")
    said = ok(run([python, "-c", "import pulumi_sweepstack as s; print(s.__file__, *dir(s))"], cwd=tmp_path, env=env))
    assert said.out.startswith(str(packages))
    assert {*RESOURCES, "shares", "ApprovalArgs"} <= set(said.out.split())

    (tmp_path / "Pulumi.yaml").write_text(
        f"name: sdk\nruntime: python\nplugins:\n  providers:\n    - name: sweepstack\n      path: {PLUGIN.parent}\n"
    )
    (tmp_path / "__main__.py").write_text(
        "import pulumi_sweepstack as s\n"
        "budget = s.BudgetArgs(usd=5, notify=[0.5])\n"
        "made = s.Identity('it', project='sdk', stack='dev', pull_to='evidence', budget=budget)\n"
    )
    at = {**env, "PATH": os.pathsep.join([str(tmp_path / ".venv" / "bin"), str(engine().parent), env["PATH"]])}
    ok(run(["pulumi", "stack", "init", "dev"], cwd=tmp_path, env=at))
    steps = ok(run(["pulumi", "preview", "--json"], cwd=tmp_path, env=at)).json()["steps"]
    (made,) = [step["newState"] for step in steps if step["newState"]["type"] == "sweepstack:index:Identity"]
    assert made["inputs"]["pullTo"] == "evidence"
    assert made["inputs"]["budget"]["usd"] == 5
    assert made["inputs"]["budget"]["notify"] == [0.5]


def test_the_node_sdk_is_compiled_and_loaded(sdks: Path, env: dict[str, str]) -> None:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"the Node SDK was made, and not compiled: there is no {tool} here")
    folder = sdks / "nodejs"
    reached = run(["npm", "ping", "--registry", REGISTRY, "--fetch-retries", "1"], cwd=folder, env=env)
    if reached.rc != 0:
        pytest.skip(f"the Node SDK was made, and not compiled: npm does not reach {REGISTRY}")
    ok(run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, env=env))
    ok(run(["npm", "run", "build"], cwd=folder, env=env))
    shutil.copy(folder / "package.json", folder / "bin")  # as it is published
    code = "console.log(JSON.stringify(Object.keys(require('./bin'))))"
    names = json.loads(ok(run(["node", "-e", code], cwd=folder, env=env)).out)
    assert {*RESOURCES, "shares", "sharesOutput"} <= set(names)


def test_a_program_in_go_is_compiled_against_the_go_sdk(sdks: Path, env: dict[str, str]) -> None:
    """With the engine's pins, which hold Pulumi's SDK for Go in the same version."""
    folder = sdks / "go"
    for name in ("go.mod", "go.sum"):
        text = (ROOT / "scripts" / "engine" / "cli" / name).read_text()
        (folder / name).write_text(text.replace("module sweepstack.local/engine", f"module {MODULE}"))
    (folder / "program").mkdir()
    (folder / "program" / "main.go").write_text(GO_PROGRAM)
    pins, cache = ROOT / "scripts" / "engine", sdks.parent / "go-cache"
    cancel = threading.Event()
    go, go_env = go_tools(oldest_go(folder), pins, cache, dict(os.environ), Console(), cancel, lambda: Path("uv"))
    ok(run([str(go), "build", "-mod=mod", "./..."], cwd=folder, env={**go_env, "GOFLAGS": "-modcacherw"}, timeout=1800))
    wrong = GO_PROGRAM.replace('pulumi.String("echo")', "pulumi.Int(1)")
    (folder / "program" / "main.go").write_text(wrong)
    said = run([str(go), "build", "-mod=mod", "./..."], cwd=folder, env=go_env, timeout=1800)
    assert_failed(said, "cannot use pulumi.Int(1)")


def test_the_dotnet_sdk_is_compiled(sdks: Path, env: dict[str, str]) -> None:
    folder = sdks / "dotnet"
    assert {f"{name}.cs" for name in RESOURCES} <= {path.name for path in folder.iterdir()}
    if shutil.which("dotnet") is None:
        pytest.skip("the .NET SDK was made, and not compiled: there is no dotnet here")
    ok(run(["dotnet", "build"], cwd=folder, env=env, timeout=1200))


GO_PROGRAM = f"""\
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"{MODULE}/sweepstack"
)

func main() {{
	pulumi.Run(func(ctx *pulumi.Context) error {{
		sweep, err := sweepstack.NewSweep(ctx, "a", &sweepstack.SweepArgs{{
			Job:        sweepstack.JobArgs{{Workdir: pulumi.String("."), Run: pulumi.String("echo")}},
			Cells:      sweepstack.CellsConfigArgs{{Grid: pulumi.ArrayMap{{"seed": pulumi.Array{{pulumi.Int(0)}}}}}},
			Candidates: pulumi.StringArray{{pulumi.String("local")}},
			Boxes:      sweepstack.BoxConfigMap{{"box-0": sweepstack.BoxConfigArgs{{Want: sweepstack.BoxWantRunning}}}},
			WhenDone:   sweepstack.WhenDoneStop,
		}})
		if err != nil {{
			return err
		}}
		ctx.Export("boxes", sweep.Boxes)
		return nil
	}})
}}
"""
