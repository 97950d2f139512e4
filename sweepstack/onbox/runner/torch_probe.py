"""Tells whether the torch that a version's cells import can use the GPUs of the box."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.processes import signal_group
from sweepstack.onbox.common.tools import says

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
