"""Tries the user's script, after a yes: `--help`, then one short run in a copy of what ships.

What it leaves tells where it writes, what proves a cell, and which file has its curve. It is bounded, and what it wrote
is gone with its folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from sweepstack.cli.progress import Progress
from sweepstack.config.own_files import own_files
from sweepstack.core.extensions import module_of
from sweepstack.core.job import Smoke
from sweepstack.core.records import Cell
from sweepstack.core.workdir import collect
from sweepstack.extensions.importers import script
from sweepstack.extensions.importers.curve import curve
from sweepstack.extensions.importers.found import Found, quoted
from sweepstack.extensions.importers.script import SMALL, Takes
from sweepstack.launch.smoke import smoke_of, tried
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError

SECONDS = 120.0
"""What the run may take; half of it for `--help`."""
LOADERS = {
    ".pt": "torch", ".pth": "torch", ".ckpt": "torch", ".bin": "torch", ".safetensors": "safetensors", ".npz": "npz",
    ".npy": "npy", ".json": "json", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip
SKIPPED = re.compile(r"(^|/)(\.|__pycache__/|wandb/|mlruns/)|config\.json$|tokenizer.*\.json$|\.(log|yaml|py|txt)$")
MOST = 4


@dataclass
class Seen:
    """What goes into the stack file. `edit`: what a person has to say, since it could not be seen."""

    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, Any] | None = None
    edit: list[str] = field(default_factory=list)


@dataclass
class Ran:
    """Files that a run left below {out} and beside the code; `why`: why it did not end well, "" if it did."""

    out: list[str]
    code: list[str]
    why: str
    shipped: tuple[str, ...] = ()
    metrics: dict[str, Any] | None = None


def run(found: Found, here: Path) -> Ran | None:
    """Reads `--help` and runs the first cell for SECONDS at most. Writes into `found.run` how the script has to be
    started so that its files are in {out}. None where the trial itself was not possible; `found.notes` says why."""
    try:
        with Progress("trial") as progress:
            if found.kind == "script":
                _help(found, here, progress.say)
            first = _once(found, here, found.run, progress.say)
            if any(_proves(first.out)) or not any(_proves(first.code)):
                return first
            return _elsewhere(found, here, first, progress.say)
    except (SweepstackError, OSError) as error:
        found.note(f"the trial was not possible: {error}")
        return None


def _help(found: Found, here: Path, say: Any) -> None:
    known = script.takes(found.program, here)
    words = " ".join(["python", quoted(found.program), *known.first_words.split(), "--help"])
    with _started(found, here, words, SECONDS / 2, say) as done:
        text = done.log.read_text(encoding="utf-8", errors="replace") if not done.ended else ""
    known = script.of_help(text, known)
    found.grid, found.fixed, found.names = {}, {}, {}
    found.notes, found.lost = [], []
    script.compose(found, known)


def _started(found: Found, here: Path, command: str, seconds: float, say: Any) -> Any:
    own = own_files(here)
    shipment = collect(here, (), own)
    params = {name: value for name, value in found.first.items() if name != "name"}
    env = dict(found.job.get("env") or {})
    smoke: Smoke = smoke_of(
        Cell(name="trial", params=params), run=command, seconds=seconds, env=env, workdir=".", code=shipment.digest,
        include=(), secrets=(), artifacts=(),
    )  # fmt: skip
    return tried(smoke, here, own, say)


def _once(found: Found, here: Path, command: str, say: Any) -> Ran:
    with _started(found, here, _short(found, here, command), SECONDS, say) as done:
        before = set(done.shipped)
        out, code = _files(done.out), [name for name in _files(done.code) if name not in before]
        tail = done.tail()
        why = f"{done.ended}{': ' + tail[-1] if tail else ''}" if done.ended else ""
        return Ran(out, code, why, done.shipped, curve(found, done.out, out))


def _short(found: Found, here: Path, command: str) -> str:
    """The command with one epoch, where the script has such an option."""
    known = script.takes(found.program, here) if found.program.endswith(".py") else Takes()
    for original, safe in found.names.items():
        if SMALL.fullmatch(original.replace("-", "_").lower().rpartition(".")[2]):
            return command.replace(f"{{{safe}}}", "1")
    small = known.first(SMALL)
    if small is not None and small.flag not in command:
        at = command.find(found.program) + len(found.program)
        return (
            f"{command[:at]} {small.word('1')}{command[at:]}"
            if small.flag.endswith("=") or " && " in command
            else f"{command} {small.word('1')}"
        )
    return command


def _elsewhere(found: Found, here: Path, first: Ran, say: Any) -> Ran:
    """A script that can't be told where to write: it runs in {out}; or, where it then finds its files no more, its
    results are copied, one cell at a time."""
    inside = found.run.replace(
        f"python {quoted(found.program)}", f'cd {{out}} && python "$OLDPWD"/{quoted(found.program)}', 1
    )
    if inside != found.run:
        second = _once(found, here, inside, say)
        if not second.why and any(_proves(second.out)):
            found.run = inside
            found.note(f"{found.program} writes beside itself, so it is started in {{out}}")
            return second
    tops = sorted({_own_top(name, first.shipped) for name in _proves(first.code)})
    names = " ".join(map(quoted, tops))
    found.run = f"rm -rf {names} && {found.run} && cp -r {names} {{out}}/"
    found.job["slots"] = 1
    found.note(f"{found.program} writes {', '.join(tops)} beside itself: copied to {{out}}, one cell at a time")
    return _once(found, here, found.run, say)


def _own_top(name: str, shipped: Iterable[str]) -> str:
    """The highest folder above a result that holds no file which ships; else the file itself. It is removed before each
    cell, so that none copies what another left."""
    parts = name.split("/")
    tops = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return next((top for top in tops if not any(one.startswith(f"{top}/") for one in shipped)), name)


def outcome(found: Found, here: Path, ran: Ran | None) -> Seen:
    """The artifacts and the curve of what a run left; without one, of the names that the source has."""
    seen = Seen()
    if ran is not None:
        seen.artifacts, seen.metrics = guessed(ran.out), ran.metrics
        if ran.why:
            seen.edit.append(
                f"the trial of {found.program} did not end well ({ran.why}): what it left until then is below"
            )
    if not seen.artifacts:
        names = _named(found, here)
        seen.artifacts = guessed(names) or {"metrics.json": {"load": "json"}}
        said = f"names that stand in {found.program}" if guessed(names) else "a guess"
        why = "the trial left nothing in {out}" if ran is not None else "nothing was run"
        seen.edit.append(f"artifacts: {said}, since {why}: the files that each cell leaves in {{out}}")
    if "{out}" not in found.run:
        seen.edit.append("run: it names no {out}: say where it writes, or `&& cp FILE {out}/`")
    if found.run.startswith("python train.py") and not (here / "train.py").is_file():
        seen.edit.append("run: train.py is a guess: name your script, or give it by another --from")
    return seen


def guessed(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The lines of `artifacts` for files below {out}. By the extension `formats` where it is there."""
    module = module_of("formats", "guess")
    if module is not None:
        return {line.path: dict(line.keys) for line in import_module(module).guess(names)}
    kept = list(_proves(names))
    kept.sort(key=lambda name: (name.endswith((".json", ".csv")), name))
    return {name: {"load": LOADERS[Path(name).suffix]} for name in kept[:MOST]}


def _proves(names: Iterable[str]) -> Iterable[str]:
    return [name for name in names if Path(name).suffix in LOADERS and not SKIPPED.search(name)]


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _named(found: Found, here: Path) -> list[str]:
    """Names of files that stand in the script as texts."""
    if not found.program.endswith(".py") or not (here / found.program).is_file():
        return []
    tree = ast.parse((here / found.program).read_text(encoding="utf-8-sig"))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names = [text.rpartition("/")[2] for text in texts if re.fullmatch(r"[\w./-]+\.\w+", text)]
    return [name for name in dict.fromkeys(names) if not (here / name).exists()]
