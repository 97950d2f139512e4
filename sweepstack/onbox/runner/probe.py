"""Checks before a version's first cell: the script is there, its imports resolve, the GPUs are seen.

It refuses only what is certain: a command that it does not understand passes. It runs no code of the job.

Tells whether the torch that a version's cells import can use the GPUs of the box.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.processes import signal_group
from sweepstack.onbox.common.run_process import says

PROBE_SECONDS = 60.0
PYTHON = re.compile(r"(?:[\w./+-]*/)?python[0-9.]*")
LAUNCHERS = {"torchrun", "accelerate", "deepspeed"}
HARMLESS = {"-u", "-B", "-O", "-OO"}
"""Options of Python that do not change the search path and take no argument."""
SCRIPT = re.compile(r"[\w./+@=-]+\.py")
MODULE = re.compile(r"[A-Za-z_][\w.]*")
IMPORTS = r"""
import ast, importlib.util, json, os, sys
kind, name = sys.argv[1:]
problem, missing = "", []
def resolve(top):
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):
        return True
if kind == "module":
    sys.path[0] = os.getcwd()
    missing = [] if resolve(name.partition(".")[0]) else [name]
else:
    sys.path[0] = os.path.dirname(os.path.abspath(name))
    with open(name, "rb") as handle:
        source = handle.read()
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError) as error:
        problem = "%s, line %s: %s" % (name, getattr(error, "lineno", "?"), getattr(error, "msg", error))
    else:
        names = []
        for node in tree.body:
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.append(node.module)
        if not any(word in source for word in (b"sys.path", b"addsitedir", b"meta_path")):
            missing = [top for top in dict.fromkeys(one.partition(".")[0] for one in names) if not resolve(top)]
print(json.dumps({"problem": problem, "missing": missing}))
"""


class Command(NamedTuple):
    """A run command that was understood: its interpreter, and the script or module."""

    python: str
    kind: str
    name: str


def understood(run: str) -> Command | None:
    """The first command of a shell text, if it plainly runs a Python script or module; else None."""
    try:
        words = shlex.split(run, comments=False, posix=True)
    except ValueError:
        return None
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        if words.pop(0).startswith(("PATH=", "PYTHON")):
            return None
    if words and words[0] == "exec":
        words.pop(0)
    if not words:
        return None
    first, *rest = words
    if first in LAUNCHERS:
        script = next((word for word in rest if SCRIPT.fullmatch(word) and not word.startswith("-")), None)
        return Command("python", "script", script) if script else None
    if not PYTHON.fullmatch(first):
        return None
    while rest and rest[0] in HARMLESS:
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m" and MODULE.fullmatch(rest[1]):
        return Command(first, "module", rest[1])
    return Command(first, "script", rest[0]) if rest and SCRIPT.fullmatch(rest[0]) else None


def gpus_asked(spec: Mapping[str, Any]) -> int:
    gpus = spec.get("gpus") or []
    return gpus if isinstance(gpus, int) else len(gpus)


def probe(code: Path, run: str, env: Mapping[str, str], gpus: int, running: set[int] | None = None) -> str:
    """Why a version's cells could not start; "" when no reason was found. Blocks for a few minutes at most.

    `code`: the folder in which they run. `gpus`: the number of GPUs that the box must show. `running`: see
    `torch_problem`.
    """
    problems = [problem for problem in (_gpus(env, gpus), _script(code, run, env)) if problem]
    if gpus and not problems and (python := _interpreter(run, env)):
        problems = [problem for problem in (torch_problem(python, env, running),) if problem]
    return "; ".join(problems)


def _interpreter(run: str, env: Mapping[str, str]) -> str | None:
    """The Python that cells run, where that is plain: their command says so, or their set-up made an environment."""
    command = understood(run)
    if command is None and "VIRTUAL_ENV" not in env:
        return None
    return shutil.which(command.python if command is not None else "python", path=env.get("PATH"))


def _gpus(env: Mapping[str, str], asked: int) -> str:
    seen = len(gpus_seen(env)) if asked else 0
    return f"{seen} of {asked} GPUs are seen on this box (nvidia-smi -L)" if seen < asked else ""


def gpus_seen(env: Mapping[str, str]) -> list[str]:
    """The lines of `nvidia-smi -L`, one for each GPU; empty without this program."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = says("nvidia-smi", "-L", seconds=PROBE_SECONDS, path=env.get("PATH"))
        return [line for line in said.splitlines() if line.startswith("GPU ")]
    return []


def not_shipped(name: str) -> str:
    return f"{name} is not among the shipped files: git add it, or name it under job.include"


def _script(code: Path, run: str, env: Mapping[str, str]) -> str:
    command = understood(run)
    if command is None:
        return ""
    if command.kind == "script" and not (code / command.name).is_file():
        return not_shipped(command.name)
    python = shutil.which(command.python, path=env.get("PATH"))
    if not python:
        other = shutil.which("python3", path=env.get("PATH"))
        instead = f", and python3 is ({other}): write that in job.run" if other else ""
        return f"{command.python} is not on the PATH of cells here ({env.get('PATH')}){instead}"
    argv = [python, "-c", IMPORTS, command.kind, command.name]
    try:
        none = subprocess.DEVNULL
        done = subprocess.run(
            argv,
            cwd=code,
            env=dict(env),
            stdin=none,
            stdout=subprocess.PIPE,
            stderr=none,
            timeout=PROBE_SECONDS,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return ""  # a slow disk is no reason to refuse
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        if os.access(python, os.X_OK) and _starts(python, env):
            return ""
        return f"{python} can't be run on this box"
    if found["problem"]:
        return str(found["problem"])
    if found["missing"]:
        names = ", ".join(found["missing"])
        return f"{command.name} imports {names}, which this box does not have: install it in job.setup, or ship it"
    return ""


def _starts(python: str, env: Mapping[str, str]) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([python, "-c", ""], env=dict(env), timeout=PROBE_SECONDS, check=True, stdin=subprocess.DEVNULL)
        return True
    return False


TORCH_SECONDS = 120.0
SWITCH = "SWEEPSTACK_CHECK_TORCH"
"""A variable of the job: `0` for one that has torch and does not use it on a GPU."""
_ASK = r"""
import importlib.util, json, sys, warnings
sys.path = [path for path in sys.path if path]
if importlib.util.find_spec("torch") is None:
    print("{}")
else:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import torch
        built, sees = torch.version.cuda or getattr(torch.version, "hip", None), torch.cuda.is_available()
    why = [str(one.message).split("\n")[0] for one in said if "CUDA" in str(one.message)]
    others = [one for one in ("jax", "tensorflow", "paddle", "cupy") if importlib.util.find_spec(one)]
    found = {"version": str(torch.__version__), "built": built, "sees": sees, "why": why[-1:], "others": others}
    print(json.dumps(found))
"""


def torch_problem(python: str, env: Mapping[str, str], running: set[int] | None = None) -> str:
    """Why torch would train on the CPU; "" where it sees a GPU, is not there, or does not say so in time. A torch that
    is built for the CPU may stand beside a library that trains on the GPU: then that was chosen.

    `python`: what cells run. `running`: holds the leader of its process group meanwhile, which may be ended. Blocks for
    TORCH_SECONDS at most.
    """
    if env.get(SWITCH) == "0" or "CUDA_VISIBLE_DEVICES" in env:
        return ""
    found = _asked(python, env, set() if running is None else running)
    if not found or found["sees"]:
        return ""
    skip = f'Does the job not use it on a GPU? job.env: {{{SWITCH}: "0"}}'
    version, built = found["version"], found["built"]
    if not built and found["others"]:
        return ""
    if not built:
        return (
            f"torch {version} is built for the CPU, and the job has a GPU: leave torch out of what job.setup installs, "
            f"so that the image's stays, or install a CUDA build (--index-url https://download.pytorch.org/whl/cu124). "
            f"{skip}"
        )
    driver = _driver_cuda(env)
    why = f" ({found['why'][0]})" if found["why"] else ""
    does = f", and the driver does CUDA {driver} at most" if driver else ""
    return (
        f"torch {version} is built for CUDA {built}{does}, and torch.cuda.is_available() is false{why}: ask for a "
        f'newer driver (resources.gpu.cuda: "{built}+"), or install a torch built for an older CUDA. {skip}'
    )


def _asked(python: str, env: Mapping[str, str], running: set[int]) -> dict[str, Any]:
    argv, none = [python, "-c", _ASK], subprocess.DEVNULL
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
        process = subprocess.Popen(
            argv, env=dict(env), stdin=none, stdout=subprocess.PIPE, stderr=none, start_new_session=True
        )
        running.add(process.pid)
        try:
            said, _ = process.communicate(timeout=TORCH_SECONDS)
            return dict(json.loads(said.splitlines()[-1])) if process.returncode == 0 else {}
        finally:
            running.discard(process.pid)
            if process.poll() is None:
                signal_group(process.pid, signal.SIGKILL)
                process.wait()
    return {}


def _driver_cuda(env: Mapping[str, str]) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = says("nvidia-smi", "-q", seconds=TORCH_SECONDS, path=env.get("PATH"))
        match = re.search(r"CUDA Version\s*:\s*([0-9]+\.[0-9]+)", said)
        return match[1] if match else ""
    return ""
