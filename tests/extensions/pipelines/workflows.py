"""Runs the jobs of a written workflow of GitHub, or of a written pipeline of GitLab, step by step on this machine.

It knows only what these files use, and refuses anything else. `make proof` runs the same files by runners that others
wrote (test_by_others.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

SECONDS = 300.0
CHECKOUT = re.compile(r"actions/checkout@[0-9a-f]{40}")
UPLOAD = re.compile(r"actions/upload-artifact@[0-9a-f]{40}")
KEPT = "https://forge.invalid/actions/runs/1/artifacts/1"
VALUE = re.compile(r"\$\{\{ ([\w.-]+) \}\}")


@dataclass
class Ran:
    """What ran: the names of the jobs, the worst exit code, all that was printed, the files that were kept, and the
    job's summary."""

    jobs: list[str] = field(default_factory=list)
    code: int = 0
    said: str = ""
    kept: list[Path] = field(default_factory=list)
    summary: str = ""

    def __str__(self) -> str:
        return f"jobs {self.jobs}, code {self.code}\n{self.said}"


def holds(condition: str, values: Mapping[str, str]) -> bool:
    """Whether `a == b && c != 'd' && startsWith(g, 'h') || e` holds, for names of `values`."""

    def value(word: str) -> str:
        word = word.strip()
        return word[1:-1] if word.startswith("'") else values.get(word, "")

    def one(part: str) -> bool:
        if begins := re.fullmatch(r"\s*startsWith\((\S+), (\S+)\)\s*", part):
            return value(begins[1]).lower().startswith(value(begins[2]).lower())
        left, sign, right = (*re.split(r"(==|!=)", part), "!=", "''")[:3]
        return (value(left) == value(right)) is (sign == "==")

    return any(all(map(one, either.split("&&"))) for either in condition.split("||"))


def github(
    clone: Path,
    name: str,
    event: Mapping[str, Any],
    *,
    values: Mapping[str, str],
    secrets: Mapping[str, str],
    machine: Mapping[str, str],
    granted: Callable[[set[str]], None] = lambda _: None,
) -> Ran:
    """Runs a workflow in a fresh clone. `values`: what its expressions may name, such as `inputs.stack`; `machine`: the
    variables of the runner; `granted` is told the rights of each job's token. A step sees only the secrets that it
    names."""
    workflow = yaml.safe_load((clone / ".github/workflows" / name).read_text())
    assert workflow["permissions"] == {}, "each job names its own rights"
    ran = Ran()
    known = {**values, **{f"secrets.{key}": value for key, value in secrets.items()}}
    for key, job in workflow["jobs"].items():
        if not holds(job["if"], known):
            continue
        assert job.get("needs") in (None, *ran.jobs)
        if ran.jobs:  # each job has a machine of its own
            code, said = run_to_end(["git", "clean", "-ffdxq"], clone, {})
            assert code == 0, said
        temp = clone.parent / f"{clone.name}-{key}"
        temp.mkdir()
        (temp / "event.json").write_text(json.dumps(event))
        ran.jobs.append(key)
        rights = job["permissions"].items()
        granted({right if level == "write" else f"{right}:read" for right, level in rights})
        failed, outputs = False, temp / "outputs"
        for step in job["steps"]:
            if UPLOAD.fullmatch(step.get("uses", "")):
                folder, _, pattern = step["with"]["path"].removeprefix("${{ runner.temp }}/").partition("/")
                ran.kept += sorted((temp / folder).glob(pattern))
                known[f"steps.{step.get('id', '')}.outputs.artifact-url"] = KEPT if ran.kept else ""
                continue
            if "uses" in step:
                assert CHECKOUT.fullmatch(step["uses"]), step["uses"]
                assert step["with"]["persist-credentials"] is False
                continue
            assert step.get("if") in (None, "success() || failure()", "always()"), step
            if failed and "if" not in step:
                continue
            own = {one: _filled(text, known) for one, text in step.get("env", {}).items()}
            env = {**machine, **own, "RUNNER_TEMP": str(temp), "GITHUB_EVENT_PATH": str(temp / "event.json")}
            outputs.write_text("")
            env |= {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(temp / "summary")}
            code, said = run_to_end(["bash", "-e", "-c", step["run"]], clone, env)
            for line in outputs.read_text().splitlines():
                known[f"steps.{step.get('id', '')}.outputs.{line.partition('=')[0]}"] = line.partition("=")[2]
            ran.said += said
            failed = failed or code != 0
            ran.code = ran.code or code
        ran.summary = (temp / "summary").read_text() if (temp / "summary").exists() else ""
        for name, text in job.get("outputs", {}).items():
            known[f"needs.{key}.outputs.{name}"] = _filled(text, known)
    return ran


def _filled(text: str, known: Mapping[str, str]) -> str:
    filled = VALUE.sub(lambda found: known.get(found[1], ""), text)
    assert "${{" not in filled, f"an expression that this reader does not know: {text}"
    return filled


def run_to_end(command: list[str], cwd: Path, env: Mapping[str, str], seconds: float = SECONDS) -> tuple[int, str]:
    """Runs a program with these variables and PATH. Returns its exit code, and all that it printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout
