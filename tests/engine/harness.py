"""A sweep for tests: a copy of the checkout, a job of a tenth of a second, and the real commands.

Everything is started the way a new user starts it: `pulumi …` and `sweepctl …`, from the checkout, with `.venv/bin`
first on PATH. HOME, the XDG folders, PULUMI_HOME and the backend are the test's own.
"""

from __future__ import annotations

import compileall
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.accepted_facts import accepted_today
from tests.engine import commands, looking
from tests.engine.commands import Result, ok
from tests.engine.looking import Snapshot, different, line_diff, tree

ROOT = Path(__file__).resolve().parents[2]
"""The checkout under test. In a mutant's tree this is the mutant."""
COMMAND_PLUGIN = "SWEEPSTACK_COMMAND_PLUGIN"
"""The official command plugin, where the tests are to run with it."""
LEFT_OUT = {"tests", "docs", "bench", "results", "dist"}
COMPILED = ("components", "sweepstack")

TRAIN = Path(__file__).with_name("train.py")
PIP_ONCE = Path(__file__).with_name("pip_once")
"""On the path of Python of each command: see `pip_once/pip/__main__.py`."""


@dataclass
class Stack:
    """One stack in a checkout of its own. `project` may be another folder than the checkout (edited programs)."""

    base: Path
    name: str = "t"
    cells: tuple[str, ...] = ("seed0", "seed1", "seed2", "seed3")
    boxes: tuple[str, ...] = ("box-0", "box-1")
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._said: dict[str, dict[str, Any]] = {}
        self.checkout = self.project = self.base / "checkout"
        self.evidence = self.base / "evidence"
        self.control = self.base / "control"
        self.job = self.base / "job"
        for folder in ("control", "job", "home", "data", "cache", "pulumi-home", "backend"):
            (self.base / folder).mkdir(parents=True)
        shutil.copy2(TRAIN, self.job)
        copy_checkout(self.checkout)
        self.env = self._environment() | self.env

    # what a person sets and writes

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", COMMAND_PLUGIN) if name in os.environ}
        own = {
            "HOME": str(self.base / "home"),
            "XDG_DATA_HOME": str(self.base / "data"),
            "XDG_CACHE_HOME": str(self.base / "cache"),
            "PULUMI_HOME": str(self.base / "pulumi-home"),
            "PULUMI_BACKEND_URL": f"file://{self.base / 'backend'}",
            "NO_COLOR": "1",
            "PATH": f"{self.checkout / '.venv' / 'bin'}:{kept['PATH']}",
            "PYTHONPATH": str(PIP_ONCE),
            "GOGC": "400",  # the engine's own garbage is a fifth of what it takes, and nothing of what is proved
        }
        stand_in = os.environ.get("SWEEPSTACK_TEST_ENGINE")
        if stand_in:  # before the launcher is installed: an engine, and what the launcher would set
            own["PATH"] = f"{self.checkout / '.venv' / 'bin'}:{stand_in}:{kept['PATH']}"
            own |= {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_SKIP_UPDATE_CHECK": "true"}
        if os.environ.get("SWEEPSTACK_TEST_TREE"):  # a mutant: its code, not the installed one
            own["PYTHONPATH"] = f"{self.checkout}:{PIP_ONCE}"
        return kept | own

    @property
    def config_file(self) -> Path:
        """The stack config."""
        return self.checkout / "stacks" / f"Pulumi.{self.name}.yaml"

    def config(self) -> dict[str, Any]:
        """What the stack config says of the sweep."""
        document = yaml.safe_load(self.config_file.read_text())
        return dict(document["config"]["sweepstack:sweep"])

    def edit_config(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Lets `change` work on the sweep's mapping and writes it back. Comments go."""
        document = yaml.safe_load(self.config_file.read_text())
        sweep = document["config"]["sweepstack:sweep"]
        change(sweep)
        if old := accepted_today(sweep.get("candidates", ())):
            sweep["accept_facts"] = old
        self.config_file.write_text(yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=10_000))

    def write_config(self) -> None:
        """The smallest whole sweep: a grid over seeds, two artifacts, a price to make waiting cost something."""
        boxes = ", ".join(f"{box}: {{want: running}}" for box in self.boxes)
        seeds = ", ".join(cell.removeprefix("seed") for cell in self.cells)
        self.config_file.parent.mkdir(exist_ok=True)
        self.config_file.write_text(
            textwrap.dedent(f"""\
            # a sweep for tests
            config:
              sweepstack:sweep:
                job:
                  workdir: {self.job}
                  run: python train.py --seed {{seed}} --out {{out}}
                  env: {{DRILL_CONTROL: {self.control}}}
                  resources: {{cpu: 1}}
                cells:
                  grid: {{seed: [{seeds}]}}
                artifacts:
                  model.safetensors: {{load: safetensors, keys: [w1], finite: require}}
                  metrics.json: {{load: json, keys: [loss], finite: report}}
                candidates: [local]
                overrides: {{local: {{price_per_hour: 1.25}}}}
                boxes: {{{boxes}}}
                pull_to: {self.evidence}
            """)
        )

    def hold(self, *cells: str) -> None:
        """These cells stay in the middle of their training until released."""
        for cell in cells:
            self.tell("hold", cell)

    def release(self, *, but: Collection[str] = ()) -> None:
        """Held cells go on. To release all and to hold some again would let these go on, too, on a busy machine."""
        for path in self.control.glob("hold-*"):
            if path.name.removeprefix("hold-") not in but:
                path.unlink()

    def tell(self, word: str, cell: str) -> None:
        """`hold`, `fail`, `nan`, `inf`, `wrongkey`, `nothing`: what a cell does when it runs."""
        (self.control / f"{word}-{cell}").touch()

    # commands

    def start(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Starts a command in the project and returns; the caller ends it."""
        return commands.start(argv, cwd=cwd or self.project, env={**self.env, **(env or {})})

    def run(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, **how: Any) -> Result:
        """Runs a command in the project to its end (`commands.run`)."""
        return commands.run(argv, cwd=cwd or self.project, env={**self.env, **(env or {})}, **how)

    def terminal(self, *argv: str, **how: Any) -> Result:
        """Types a command on a terminal (`commands.on_terminal`)."""
        return commands.on_terminal(argv, cwd=self.project, env=self.env, **how)

    def pulumi(self, *words: str, **how: Any) -> Result:
        """`pulumi <words> --stack …` without a terminal; says yes for `up` and `destroy`, as CI does."""
        yes = ("--yes",) if words[0] in ("up", "destroy") and "--preview-only" not in words else ()
        return self.run("pulumi", *words, "--stack", self.name, "--non-interactive", *yes, **how)

    def sweepctl(self, *words: str, **how: Any) -> Result:
        """`sweepctl <words> --stack …`."""
        return self.run("sweepctl", *words, "--stack", self.name, **how)

    def init(self) -> None:
        """The stack in its backend, once."""
        ok(self.run("pulumi", "stack", "init", self.name, "--non-interactive"))

    def up(self, *words: str, **how: Any) -> Result:
        """`pulumi up --yes`, without the preview before it: half the time."""
        return self.pulumi("up", "--skip-preview", *words, **how)

    def destroy(self, *words: str, **how: Any) -> Result:
        """`pulumi destroy --yes`, likewise."""
        return self.pulumi("destroy", "--skip-preview", *words, **how)

    def verify(self) -> dict[str, Any]:
        """The document of `sweepctl verify --json`, whatever it says of the cells."""
        result = self.sweepctl("verify", "--json")
        assert result.rc in (0, 1), str(result)
        return dict(result.json())

    def approve(self, *words: str) -> Result:
        """Verifies, and approves exactly that receipt; `words`: what is given up, and why, or which box."""
        return ok(self.sweepctl("give-up" if "--reason" in words else "approve", self.verify()["receipt"], *words))

    def run_loop(self) -> None:
        """From training cells to a cleared stack: wait → pull → verify → approve → up."""
        self.wait_done()
        self.wait_idle()
        ok(self.sweepctl("pull"))
        self.approve()
        ok(self.up())

    def wait_for(self, what: Callable[[], object], words: str, seconds: float = commands.COMMAND_SECONDS) -> None:
        """Looks 20 times a second until `what` holds."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {words}\n{self.picture()}"
            time.sleep(0.05)

    def wait_done(self, *, but: Sequence[str] = ()) -> None:
        """Until all cells, `but` those held, are sealed on their boxes."""
        wanted = set(self.cells) - set(but)
        self.wait_for(lambda: wanted <= self.sealed(), f"sealed: {sorted(wanted)}")

    def wait_idle(self) -> None:
        """Until no runner is alive."""
        self.wait_for(lambda: not any(self.processes().values()), "the runners to end")

    # what is there, seen without sweepstack

    @property
    def adapter(self) -> str:
        """What boxes are made by, as their inputs say it."""
        return "local"

    @property
    def platform_root(self) -> Path:
        """The local platform's folder."""
        return Path(self.env["XDG_DATA_HOME"]) / "sweepstack" / "local"

    def native_ids(self) -> list[str]:
        """Every box that exists."""
        boxes = self.platform_root / "boxes"
        return sorted(path.name for path in boxes.glob("[!.]*")) if boxes.is_dir() else []

    def box_dir(self, box: str) -> Path:
        """The folder of the box of this name (not id)."""
        folders = [self.platform_root / "boxes" / native_id for native_id in self.native_ids()]
        found = [folder for folder in folders if f"-{box}-g" in (folder / "tag").read_text()]
        assert len(found) == 1, f"boxes called {box}: {found}"
        return found[0]

    def native_id(self, box: str) -> str:
        """The native id of a box."""
        return self.box_dir(box).name

    def volume_contents(self) -> list[Path]:
        """The durable tiers."""
        return sorted((self.platform_root / "volumes").glob("*/content"))

    def journal(self, box: str) -> list[dict[str, Any]]:
        """The whole lines of a box's journal."""
        path = self.box_dir(box) / "data" / "sweep" / "journal.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def started(self, *boxes: str) -> list[str]:
        """Every start of a cell that the journals of these boxes (of all) tell of."""
        return sorted(
            e["cell"] for box in boxes or self.boxes for e in self.journal(box) if e["event"] == "cell-started"
        )

    def sealed(self) -> set[str]:
        """Cells with a manifest on a durable tier."""
        return {path.parent.name for root in self.volume_contents() for path in root.glob("*/cells/*/manifest.json")}

    def durable_cell(self, cell: str) -> Path:
        """The sealed copy of a cell."""
        found = [path for root in self.volume_contents() for path in root.glob(f"*/cells/{cell}")]
        assert len(found) == 1, f"sealed copies of {cell}: {found}"
        return found[0]

    def cells_of(self, box: str) -> list[str]:
        """The cells that a box's queue was given."""
        lines = (self.box_dir(box) / "data" / "sweep" / "queue.jsonl").read_text().splitlines()
        return sorted({entry["cell"] for entry in map(json.loads, lines) if entry["op"] == "add"})

    def births(self) -> list[dict[str, Any]]:
        """The birth records: one for each box ever rented."""
        folder = self.evidence / "records" / "births"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]

    def processes(self) -> dict[str, list[int]]:
        """native id → pids of its live processes, for every box that is or was."""
        born = {birth["native_id"] for birth in self.births() if birth["native_id"]}
        return looking.processes_of({*self.native_ids(), *born})

    def runner_pid(self, box: str) -> int:
        """The pid in the runner's own file."""
        return int(json.loads((self.box_dir(box) / "data" / "sweep" / "runner.pid").read_text())["pid"])

    def kill_box(self, native_id: str) -> None:
        """kill -9 of all that runs on a box: the power cut."""
        for _ in range(100):
            pids = looking.processes_of([native_id])[native_id]
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        raise AssertionError(f"processes of {native_id} survive SIGKILL: {self.processes()}")

    def vanish(self, box: str) -> str:
        """A box goes away behind everybody's back: its processes and its folder. Returns its native id."""
        folder = self.box_dir(box)
        self.kill_box(folder.name)
        shutil.rmtree(folder)
        return folder.name

    # the engine's state

    def state(self) -> dict[str, Any]:
        """The state as the file backend has it: resources and pending operations."""
        folder = Path(self.env["PULUMI_BACKEND_URL"].removeprefix("file://")) / ".pulumi" / "stacks"
        (path,) = folder.glob(f"*/{self.name}.json")
        return json.loads(path.read_text())["checkpoint"]["latest"] or {}

    def edit_state(self, change: Callable[[list[dict[str, Any]]], object]) -> None:
        """Exports the state, lets `change` work on its resources, and imports it."""
        document = ok(self.run("pulumi", "stack", "export", "--stack", self.name)).json()
        change(document["deployment"]["resources"])
        path = self.base / "edited-state.json"
        path.write_text(json.dumps(document))
        ok(self.run("pulumi", "stack", "import", "--stack", self.name, "--file", str(path), "--force"))

    def resources(self, kind: str) -> list[dict[str, Any]]:
        """The state's resources of type `sweepstack:index:<kind>`."""
        found = self.state().get("resources", [])
        return [resource for resource in found if resource["type"] == f"sweepstack:index:{kind}"]

    def urn(self, kind: str, box: str = "") -> str:
        """The URN of a box's Box, Queue or Gate, or of the only resource of a kind."""
        found = [
            r for r in self.resources(kind) if not box or box in (r["inputs"].get("boxName"), r["inputs"].get("name"))
        ]
        assert len(found) == 1, f"{kind} of {box}: {[r['urn'] for r in found]}"
        return str(found[0]["urn"])

    def edit_in_state(self, verb: str, urn: str, *flags: str) -> Result:
        """`pulumi state <verb> URN`."""
        return ok(self.run("pulumi", "state", verb, urn, *flags, "--stack", self.name, "--yes"))

    # before and after

    def snapshot(self, *, state: bool = True) -> Snapshot:
        """All that a refused command must leave as it is; without the engine's state where there may be none. Waits for
        processes that end by themselves."""
        own = (pid for pids in self.processes().values() for pid in pids)
        for pid in filter(looking.describes, own):
            self.wait_for(lambda pid=pid: not looking.describes(pid), "the end of what writes an environment down")
        boxes = {native_id: tree(self.platform_root / "boxes" / native_id) for native_id in self.native_ids()}
        return Snapshot(
            boxes=tuple(boxes),
            files={**boxes, **{path.parent.name: tree(path) for path in self.volume_contents()}},
            processes={native_id: tuple(pids) for native_id, pids in self.processes().items()},
            births=tuple(json.dumps(birth | {"begun_at": ""}, sort_keys=True) for birth in self.births()),
            state=looking.stable_state(self.state()) if state else "",
        )

    def assert_unchanged(self, before: Snapshot, result: Result | None = None, *, state: bool = True) -> None:
        """Same native ids, same tiers, same processes, same births; same engine state unless `state` is off."""
        after = self.snapshot(state=state)
        said = f"\n\n{result}" if result else ""
        assert after.boxes == before.boxes, f"other boxes than before: {before.boxes} → {after.boxes}{said}"
        for name, files in before.files.items():
            now = after.files.get(name, {})
            assert now == files, f"{name}: {different(files, now)}{said}"
        assert after.processes == before.processes, f"processes: {before.processes} → {after.processes}{said}"
        assert after.births == before.births, f"birth records: {before.births} → {after.births}{said}"
        if state:
            assert after.state == before.state, f"the state changed:\n{line_diff(before.state, after.state)}{said}"

    def picture(self) -> str:
        """What is there, for a failure's message."""
        logs = "".join(
            f"\n{path.relative_to(self.platform_root)}:\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.platform_root.glob("boxes/[!.]*/data/sweep/runner.log"))
        )
        return f"boxes {self.native_ids()}, processes {self.processes()}, sealed {sorted(self.sealed())}{logs}"

    # going back to an earlier moment

    _KEPT = ("backend", "data", "evidence", "checkout/stacks", "control", "pulumi-home", "job", "home", "cache")

    def save(self, moment: str) -> None:
        """Keeps all that commands write, and what this object says, as they are. Nothing may run on a box then."""
        assert not any(self.processes().values()), f"something runs: {self.picture()}"
        for name in self._KEPT:
            copy_over(self.base / name, self.base / "saved" / moment / name)
        self._said[moment] = {**vars(self), "env": dict(self.env)}

    def restore(self, moment: str) -> None:
        """Puts them back in place (paths and times stay the same), and ends what ran meanwhile."""
        self.close()
        for name in self._KEPT:
            copy_over(self.base / "saved" / moment / name, self.base / name)
        said = self._said[moment]
        vars(self).clear()  # what a test replaced or added, too
        vars(self).update(said, env=dict(said["env"]))

    def keep_state(self) -> None:
        """Keeps the engine's state alone; boxes may run on."""
        copy_over(self.base / "backend", self.base / "saved" / "state")

    def put_back_state(self) -> None:
        """The engine's state as it was kept."""
        copy_over(self.base / "saved" / "state", self.base / "backend")

    def close(self) -> None:
        """Ends everything that runs on this test's boxes."""
        for native_id, pids in self.processes().items():
            if pids:
                self.kill_box(native_id)


def copy_over(source: Path, target: Path) -> None:
    """Makes `target` what `source` is, times, modes and links included."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.exists():
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@functools.cache
def compiled_once() -> None:
    """Compiles what is not compiled yet of the checkout under test."""
    for folder in COMPILED:
        compileall.compile_dir(ROOT / folder, quiet=2)


def copy_checkout(target: Path) -> None:
    """The files of the checkout that a person works with, and its environment by a link.

    What Python has compiled of it goes along, or each sweep of the tests would compile the whole provider again: Python
    takes a compiled file only where it fits the source's size and time, and a copy has both.
    """
    compiled_once()
    target.mkdir(parents=True)
    for entry in sorted(ROOT.iterdir()):
        if entry.name in LEFT_OUT or (entry.name.startswith(".") and entry.name != ".pulumi-version"):
            continue
        if entry.is_dir():
            ignored = None if entry.name in COMPILED else shutil.ignore_patterns("__pycache__")
            shutil.copytree(entry, target / entry.name, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(entry, target / entry.name)
    (target / ".venv").symlink_to((ROOT / ".venv").resolve())
