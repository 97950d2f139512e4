"""What the image brings of torch is not replaced by a set-up, and a torch without the box's GPU starts no cell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from sweepstack.onbox.runner import setup as runner_setup
from sweepstack.onbox.runner.environment import constrain
from sweepstack.onbox.runner.probe import SWITCH, torch_problem
from tests.oldest_python import onbox_python
from tests.onbox.harness import Box, wait_for
from tests.onbox.test_setup import add, bare_python

IMAGE, PROJECT = "2.5.1+cu124", "2.6.0"
VERSION = "import importlib.metadata as m; print(m.version('torch'))"


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", f"__version__ = {version!r}\n")
        more = f"Requires-Dist: {needs}\n" if needs else ""
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", "")


@pytest.fixture
def image(box: Box, tmp_path: Path) -> Path:
    """A box whose image has its own torch, and a folder of wheels in place of an index: a newer torch, and a package
    that asks for any."""
    python = bare_python(tmp_path / "base")
    (site,) = (tmp_path / "base").glob("lib/python*/site-packages")
    for part in Path(sysconfig.get_path("purelib", vars={"base": sys.base_prefix})).glob("pip*"):
        (site / part.name).symlink_to(part)  # else each set-up would install one: tests/onbox/test_setup.py
    wheel(tmp_path / "own", "torch", IMAGE)
    zipfile.ZipFile(next((tmp_path / "own").iterdir())).extractall(site)
    wheels = tmp_path / "wheels"
    wheel(wheels, "torch", PROJECT)
    wheel(wheels, "trainer", "1.0", "torch>=2")
    box.set(python=python, keep=["torch", "torchvision"])
    return wheels


def test_no_set_up_replaces_the_torch_of_the_image(box: Box, image: Path) -> None:
    """Real pips without a network: what is asked for is there already, or the set-up fails and says what to do."""
    pip = f"pip install -q --no-index --find-links {image}"
    fine = {"any": f"{pip} trainer && {pip} --upgrade trainer torch"}
    refused = {
        "pinned": f"{pip} torch=={PROJECT}",
        "forced": f"PIP_CONSTRAINT= {pip} torch=={PROJECT}",
    }
    for cell, setup in {**fine, **refused}.items():
        add(box, cell, setup, f'python -c "{VERSION}" > {{out}}/torch.txt && echo 1 > {{out}}/result.json')
    box.run(*fine, code=7)
    assert {(box.sealed(cell) / "torch.txt").read_text().strip() for cell in fine} == {IMAGE}
    assert {box.state(cell) for cell in refused} == {"pending"}
    why = sorted(str(one["reason"]) for one in box.events("setup-failed"))
    assert len(why) == 2
    assert why[0].startswith("exit code 1: ")
    assert f"; torch {IMAGE} of the image stays as it is: take its pin out of what is installed, or write" in why[0]
    assert why[1].startswith(
        f"it put torch {PROJECT} before the image's {IMAGE}: take its pin out of what is installed"
    )


def test_uv_sees_what_is_kept(tmp_path: Path) -> None:
    """uv looks at the environment's own folder alone: without the package there, each one that needs any torch would
    have no solution, since no index has the image's build."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    runner_setup.write_kept(tmp_path / "env", {"torch": IMAGE})
    (libraries,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (found,) = metadata.distributions(path=[str(libraries)], name="torch")
    assert (found.version, found.requires) == (IMAGE, None), "what it needs is the image's, which uv does not see"
    uv = shutil.which("uv")
    if uv is None:
        return
    wheel(tmp_path / "wheels", "trainer", "1.0", "torch>=2")
    wheel(tmp_path / "wheels", "torch", PROJECT)
    env = {"PATH": os.environ["PATH"], "VIRTUAL_ENV": str(tmp_path / "env"), "UV_CACHE_DIR": str(tmp_path / "cache")}
    constrain(env, tmp_path / "env")
    install = [uv, "pip", "install", "--offline", "--no-index", "--find-links", str(tmp_path / "wheels")]
    subprocess.run([*install, "trainer"], env=env, check=True)
    assert subprocess.run([*install, f"torch=={PROJECT}"], env=env).returncode


# -- torch and the GPU


TORCH = """
import types, warnings
__version__ = {version!r}
version = types.SimpleNamespace(cuda={cuda!r})
def is_available():
    warnings.warn("CUDA initialization: the driver is too old (found version 12040).")
    return {sees!r}
cuda = types.SimpleNamespace(is_available=is_available)
"""


def env_with(folder: Path, **torch: object) -> dict[str, str]:
    """The variables of a job in whose environment there is such a torch."""
    (folder / "torch.py").write_text(TORCH.format(**torch))
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '    CUDA Version                          : 12.4'\n")
    tool.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ({"version": "2.6.0+cu124", "cuda": "12.4", "sees": True}, []),
        (
            {"version": "2.6.0+cpu", "cuda": None, "sees": False},
            ["torch 2.6.0+cpu is built for the CPU, and the job has a GPU: leave torch out of what job.setup installs"],
        ),
        (
            {"version": "2.8.0+cu128", "cuda": "12.8", "sees": False},
            [
                "torch 2.8.0+cu128 is built for CUDA 12.8, and the driver does CUDA 12.4 at most",
                "(CUDA initialization: the driver is too old (found version 12040).)",
                'resources.gpu.cuda: "12.8+"',
                'job.env: {SWEEPSTACK_CHECK_TORCH: "0"}',
            ],
        ),
    ],
)
def test_a_torch_that_sees_no_gpu_is_named_with_its_fix(
    tmp_path: Path, torch: dict[str, object], said: list[str]
) -> None:
    env = env_with(tmp_path, **torch)
    found = torch_problem(onbox_python(), env)
    assert bool(found) == bool(said)
    assert all(words in found for words in said), found
    assert torch_problem(onbox_python(), {**env, SWITCH: "0"}) == ""


def test_no_torch_and_one_that_does_not_answer_are_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = env_with(tmp_path, version="2", cuda=None, sees=False)
    (tmp_path / "torch.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr("sweepstack.onbox.runner.probe.TORCH_SECONDS", 0.5)
    assert torch_problem(onbox_python(), env) == ""
    assert torch_problem(str(tmp_path / "no-python"), env) == ""
    assert torch_problem(bare_python(tmp_path / "base"), {"PATH": os.environ["PATH"]}) == ""


def test_a_runner_that_stops_does_not_wait_for_torch(tmp_path: Path) -> None:
    """On a slow disk its import takes minutes: the runner ends it with its other stages."""
    env = env_with(tmp_path, version="2", cuda=None, sees=False)
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'begun')!r}, 'w').close()\nimport time; time.sleep(600)")
    running: set[int] = set()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(torch_problem, sys.executable, env, running)
        wait_for((tmp_path / "begun").exists, lambda: str(running))
        (pid,) = running
        os.killpg(pid, signal.SIGTERM)
        assert asked.result(60) == ""
    assert running == set()


def test_a_cpu_torch_beside_jax_is_no_reason(tmp_path: Path) -> None:
    """JAX trains on the GPU, and torch only loads the data: its own pages say to install torch for the CPU then."""
    env = env_with(tmp_path, version="2.6.0+cpu", cuda=None, sees=False)
    (tmp_path / "jax.py").write_text("")
    assert torch_problem(onbox_python(), env) == ""


def test_the_torch_of_these_tests_says_what_it_sees() -> None:
    torch = pytest.importorskip("torch")
    found = torch_problem(sys.executable, {"PATH": os.environ["PATH"]})
    meant = torch.version.cuda is None and find_spec("jax") is not None  # as with `scripts/setup --trainer`
    assert bool(found) == (not torch.cuda.is_available() and not meant)


def test_a_cpu_torch_on_a_box_with_a_gpu_starts_no_cell(box: Box, tmp_path: Path) -> None:
    box.show_gpus(1)
    env = env_with(tmp_path, version="2.6.0+cpu", cuda=None, sees=False)
    box.set(gpus=1, env={"PYTHONPATH": env["PYTHONPATH"]})
    box.add("a", "python steps.py {out}")
    box.add("b", "sh -c 'echo 1 > {out}/result.json'")  # what it runs is not plain: nothing is said of it
    box.run("b", code=7)
    (failed,) = box.events("setup-failed")
    assert str(failed["reason"]).startswith("torch 2.6.0+cpu is built for the CPU, and the job has a GPU")
    assert box.events("cell-started", "a") == []
