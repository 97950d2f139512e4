"""Tasks of SkyPilot and dstack: one run each, with what it asks of a machine."""

from __future__ import annotations

import re
from typing import Any

from sweepstack.config.file import Document
from sweepstack.extensions.importers.found import Found
from sweepstack.onbox.common.placeholders import PLACEHOLDER

SKY = ("resources", "setup", "run", "envs", "secrets", "workdir", "num_nodes", "name", "file_mounts", "volumes")
ELSEWHERE = {
    "any_of": "a choice between clouds: `candidates` lists platforms in order",
    "ordered": "a choice between clouds: `candidates` lists platforms in order",
    "cloud": "`candidates` names platforms",
    "infra": "`candidates` names platforms",
    "accelerator_args": "of TPUs",
    "ports": "a cell serves nothing; sweepctl ssh --forward reaches a port",
    "labels": "labels of a cloud",
    "autostop": "when_done and lease end a box",
    "job_recovery": "job.retries, and checkpoints",
    "disk_tier": "a platform's own disks",
    "network_tier": "a platform's own network",
}


def is_sky(data: dict[str, Any]) -> bool:
    """Whether the file is a task of SkyPilot."""
    resources = data.get("resources")
    return isinstance(data.get("run"), str) and (
        isinstance(resources, dict) or "setup" in data or "envs" in data or "num_nodes" in data
    )


def is_dstack(data: dict[str, Any]) -> bool:
    """Whether the file is a configuration of dstack."""
    return data.get("type") in ("task", "dev-environment", "service", "fleet", "volume")


def read_sky(document: Document) -> Found:
    """The one run of a SkyPilot task."""
    found, data = Found("SkyPilot task", document.shown), document.data
    asked = data.get("resources") or {}
    for key, value in asked.items():
        line = document.line(("resources", key))
        if key == "accelerators":
            _accelerators(found, value, line)
        elif key in ("cpus", "memory", "disk_size"):
            _amount(found, {"cpus": "cpu", "memory": "memory", "disk_size": "disk"}[key], value, line)
        elif key == "use_spot":
            found.resources["spot"] = bool(value)
        elif key in ("region", "zone"):
            found.resources.setdefault("regions", []).append(str(value))
        elif key == "image_id":
            found.job["image"] = str(value).removeprefix("docker:")
        else:
            found.lose(line, f"resources.{key}: {ELSEWHERE.get(key, 'not known')}")
    if data.get("num_nodes", 1) != 1:
        found.job["nodes"] = data["num_nodes"]
        found.note("num_nodes: job.nodes starts each cell by torchrun; name the other machines in boxes.<name>.peers")
    _env(found, data.get("envs") or {}, data.get("secrets") or {})
    for key in data:
        if key in ("file_mounts", "volumes"):
            for path in data[key] or {}:
                found.lose(
                    document.line((key, path)),
                    f"{key}.{path}: `mounts` has volumes and buckets; small files ship with job.include",
                )
        elif key not in SKY:
            found.lose(document.line((key,)), f"{key}: {ELSEWHERE.get(key, 'not known')}")
    if "workdir" in data:
        found.job["workdir"] = str(data["workdir"])
    _commands(found, document, str(data["run"]), ("run",))
    if data.get("setup"):
        found.job["setup"] = str(data["setup"]).strip()
    return found


def read_dstack(document: Document) -> Found:
    """The one run of a dstack task; of another type only what it asks of a machine."""
    found, data = Found(f"dstack {document.data.get('type')}", document.shown), document.data
    resources = data.get("resources") or {}
    for key, value in resources.items():
        line = document.line(("resources", key))
        if key == "gpu":
            _dstack_gpu(found, value, line)
        elif key in ("cpu", "memory"):
            _amount(found, key, value, line)
        elif key == "disk":
            _amount(found, "disk", value.get("size") if isinstance(value, dict) else value, line)
        else:
            found.lose(line, f"resources.{key}: not known here")
    env = data.get("env") or {}
    if isinstance(env, list):
        env = {one.partition("=")[0]: one.partition("=")[2] if "=" in one else None for one in env}
    _env(
        found,
        {key: value for key, value in env.items() if value is not None},
        {k: "" for k, v in env.items() if v is None},
    )
    known = {"type", "name", "resources", "env", "commands"}
    for key, value in data.items():
        line = document.line((key,))
        if key == "image":
            found.job["image"] = str(value)
        elif key == "spot_policy":
            found.resources["spot"] = value == "spot"
            if value == "auto":
                found.lose(line, "spot_policy: auto: spot is true or false")
        elif key == "max_price":
            found.max_price = float(value)
        elif key == "max_duration" and re.fullmatch(r"\d+[mhd]", str(value)):
            found.job["timeout"] = str(value)
        elif key == "nodes" and value != 1:
            found.job["nodes"] = value
        elif key == "regions":
            found.resources["regions"] = list(value)
        elif key == "python":
            found.lose(line, f"python: {value}: the image's, or the machine's own Python is taken")
        elif key not in known and key != "nodes":
            found.lose(line, f"{key}: not known here")
    commands = data.get("commands") or []
    _commands(found, document, "\n".join(map(str, commands)), ("commands",))
    return found


def _commands(found: Found, document: Document, text: str, place: tuple[str, ...]) -> None:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip() and not line.strip().startswith("#")]
    installs = [line for line in lines if re.match(r"(uv )?pip3? install|uv (sync|venv)|apt(-get)? |sudo ", line)]
    if installs and len(installs) < len(lines):
        found.job["setup"] = "\n".join(installs)
        lines = [line for line in lines if line not in installs]
    script = "\n".join(["set -e", *lines] if len(lines) > 1 else lines)
    text = PLACEHOLDER.sub(r"{ \1}", script)
    for name in dict.fromkeys(PLACEHOLDER.findall(script)):
        found.lose(document.line(place), f"{{{name}}}: written {{ {name}}}, which is no placeholder: see what it says")
    for variable in sorted(set(re.findall(r"\$\{?((?:SKYPILOT|DSTACK)_\w+)", text))):
        found.lose(document.line(place), f"${variable}: nothing sets it here")
    found.run = text
    found.program = next((word for line in lines for word in line.split() if word.endswith(".py")), "")
    found.rows = [{"name": "run"}]


def _env(found: Found, plain: dict[str, Any], secret: dict[str, Any]) -> None:
    env = {key: value for key, value in plain.items() if value not in (None, "")}
    empty = [key for key in plain if key not in env]
    if env:
        found.job["env"] = {key: found.filled(f"{key}_text", str(value)) for key, value in env.items()}
    if empty or secret:
        found.job["secrets"] = [*empty, *secret]
        found.note(f"{', '.join([*empty, *secret])}: names of variables that are set where `pulumi up` runs")


def _accelerators(found: Found, value: Any, line: int) -> None:
    if isinstance(value, dict | list):
        names = [str(one).split(":")[0] for one in value]
        counts = (
            list(value.values()) if isinstance(value, dict) else [int([*str(one).split(":"), "1"][1]) for one in value]
        )
    else:
        name, _, count = str(value).partition(":")
        names, counts = [name], [int(float(count or 1))]
    if len(set(counts)) > 1:
        found.lose(line, f"resources.accelerators: {value}: one count for all names; {counts[0]} here")
    memory = re.fullmatch(r"(.*?)-(\d+GB)", names[0])
    gpu: dict[str, Any] = {"name": names if len(names) > 1 else memory[1] if memory else names[0]}
    if memory and len(names) == 1:
        gpu["memory"] = memory[2]
    found.resources["gpu"] = gpu | {"count": int(counts[0] or 1)}


def _amount(found: Found, key: str, value: Any, line: int) -> None:
    """`8+`, `32GB..`, 256: at least so much."""
    if value is None:
        return
    text = str(value)
    low, dots, high = text.partition("..")
    if dots and high:
        found.lose(line, f"{key}: {text}: at least {low or 'nothing'}; there is no most")
    low = low.rstrip("+")
    if key == "cpu":
        if re.fullmatch(r"\d+(\.\d+)?", low):
            found.resources["cpu"] = float(low) if "." in low else int(low)
        return
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", low)
    if size is None:
        found.lose(line, f"{key}: {text}")
        return
    found.resources[key] = f"{size[1]}{size[2].upper() or 'GB'}+"


def _dstack_gpu(found: Found, value: Any, line: int) -> None:
    gpu: dict[str, Any] = {}
    if isinstance(value, dict):
        if value.get("name"):
            gpu["name"] = value["name"]
        memory, count = value.get("memory"), value.get("count", 1)
        for key in value:
            if key not in ("name", "memory", "count"):
                found.lose(line, f"resources.gpu.{key}: {value[key]}")
    else:
        memory, count = None, 1
        for part in str(value).split(":"):
            if re.fullmatch(r"\d+(\.\.\d*)?|\.\.\d+", part):
                count = part
            elif re.match(r"\d+[A-Za-z]+", part):
                memory = part
            else:
                gpu["name"] = part.split(",") if "," in part else part
    low, dots, high = str(count).partition("..")
    if dots and high and high != low:
        found.lose(line, f"resources.gpu.count: {count}: {low or high} here")
    gpu["count"] = int(low or high or 1)
    if memory is not None:
        size = str(memory).partition("..")[0].rstrip("+")
        if size:
            gpu["memory"] = f"{size.upper()}+"
        else:
            found.lose(line, f"resources.gpu.memory: {memory}")
    found.resources["gpu"] = gpu
