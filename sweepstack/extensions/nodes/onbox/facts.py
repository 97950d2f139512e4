"""What one node is and has, as far as the other nodes must have the same."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Iterator, Mapping

from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.run_process import says
from sweepstack.onbox.runner.code import CodeCheck

TOOL_SECONDS, TORCH_SECONDS = 60.0, 120.0
SWITCHES = (Path("/proc/driver/nvidia-nvswitch/devices"), Path("/dev/nvidia-nvswitchctl"))
CARD = re.compile(r"^GPU [0-9A-Fa-f]+:.*$", re.MULTILINE)
FABRIC = re.compile(r"^(\s+)Fabric[ \t]*(?:\n\1[ \t]+\S.*)*", re.MULTILINE)
FIELD = re.compile(r"^\s+(State|Status)\s*:\s*(\S.*?)\s*$", re.MULTILINE)
DRIVER = re.compile(r"^Driver Version\s*:\s*([0-9.]+)\s*$", re.MULTILINE)
VERSION = re.compile(r"\b[0-9]+\.[0-9]+(\.[0-9]+)?\b")
INFINIBAND = Path("/sys/class/infiniband")
VERSIONS = r"""
import json, platform, sys
from importlib import metadata
found = {"python": platform.python_version(), "executable": sys.executable}
for one in metadata.distributions():
    name = (one.metadata["Name"] or "").lower()
    if name == "torch" or name.startswith("nvidia-nccl"):
        found["torch" if name == "torch" else "nccl"] = one.version
if "torch" in found and "nccl" not in found and sys.argv[1] != "0":
    import torch
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(found))
"""
"""NCCL is a distribution of its own, or a part of torch, which is imported only for that: it takes seconds."""


def facts(cell: Mapping[str, Any], home: Path, code: str) -> dict[str, Any]:
    """The facts of this node. `cell`: how its Python is found: `look` (see `probe_command`), and variables `env` for
    it. Blocks for seconds."""
    gpus = _gpus()
    problem = CodeCheck(home).problem(code)
    return {
        "host": platform.node(),
        "time": time.time(),
        "versions": _versions(cell, home / "code" / hex_of(code), len(gpus)),
        "gpus": gpus,
        "fabric": fabric(gpus),
        "infiniband": _infiniband(),
        "code": problem.reason if problem is not None else "",
    }


def _versions(cell: Mapping[str, Any], folder: Path, gpus: int) -> dict[str, str]:
    try:
        said = subprocess.run(
            ["/bin/sh", "-c", cell["look"], "sh", VERSIONS, str(gpus)],
            cwd=str(folder),
            env={**os.environ, **cell["env"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TORCH_SECONDS,
            check=True,
        ).stdout
        return dict(json.loads(said.splitlines()[-1]))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"problem": lines[-1] if lines else f"`{cell['look']}` ends with exit code {error.returncode}"}
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        return {"problem": f"the Python of its cells can't be asked: {error}"}


def _gpus() -> list[str]:
    """The names of the GPUs that the driver shows; empty without a driver."""
    return [line.split(",")[0].strip() for line in _said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")]


def fabric(gpus: list[str]) -> str:
    """Why the fabric of this node's GPUs is not up, with what is known; "" where it is, and where it has none.

    The driver says it by itself on cards from H100 on, of each card; on older ones the service has to run. The service
    must be of the driver's own version. Where nothing can be seen (a container), this says nothing: the ranks' own
    time-out does."""
    if not gpus:
        return ""
    said = _said("nvidia-smi", "-q")
    cards = list(_cards(said))
    bad = [
        f"GPU {number}: {state if state != 'Completed' else f'{state}, but {status}'}"
        for number, (state, status) in enumerate(cards)
        if state not in ("N/A", "Completed") or (state == "Completed" and status not in ("N/A", "Success"))
    ]
    hosted = any(one.exists() for one in SWITCHES) and shutil.which("systemctl") is not None
    found = [f"nvidia-smi says of its fabric: {', '.join(bad)}"] if bad else []
    found += [differs] if hosted and (differs := _other_version(said)) else []
    if hosted and not found and all(state != "Completed" for state, _ in cards):
        service = (_said("systemctl", "is-active", "nvidia-fabricmanager", check=False) or ["unknown"])[0]
        found += [f"nvidia-fabricmanager is {service}"] if service in ("inactive", "failed", "activating") else []
    return "; ".join(found)


def _cards(said: list[str]) -> Iterator[tuple[str, str]]:
    """State and Status of the fabric of each card, in the order of `nvidia-smi -q`; N/A where it names none."""
    for card in CARD.split("\n".join(said))[1:]:
        section = FABRIC.search(card)
        found = dict(FIELD.findall(section[0])) if section is not None else {}
        yield found.get("State", "N/A"), found.get("Status", "N/A")


def _other_version(said: list[str]) -> str:
    """That the fabric manager is of another version than the driver, which it then refuses; "" where both are the same,
    or one is not known."""
    driver = DRIVER.search("\n".join(said))
    own = VERSION.search("\n".join(_said("nv-fabricmanager", "--version")))
    if driver is None or own is None or driver[1] == own[0]:
        return ""
    return f"nvidia-fabricmanager is {own[0]}, and the driver {driver[1]}: install the one of the driver's version"


def _infiniband() -> list[str]:
    """The InfiniBand or RoCE devices with a port that is up."""
    found = set()
    with contextlib.suppress(OSError):
        for state in INFINIBAND.glob("*/ports/*/state"):
            with contextlib.suppress(OSError):
                if "ACTIVE" in state.read_text():
                    found.add(state.parts[-4])
    return sorted(found)


def _said(*argv: str, check: bool = True) -> list[str]:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return says(*argv, seconds=TOOL_SECONDS, check=check).splitlines()
    return []


def serve(words: str) -> None:
    """Prints the facts that a JSON text asks for: {"python", "cell", "home", "code"}."""
    asked = json.loads(words)
    path = os.pathsep.join([str(Path(asked["python"]).parent), os.environ.get("PATH", os.defpath), "/usr/bin", "/bin"])
    os.environ["PATH"] = path
    print(json.dumps(facts(asked["cell"], Path(asked["home"]), asked["code"])))
