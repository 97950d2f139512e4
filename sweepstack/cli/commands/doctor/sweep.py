"""Checks of one sweep: stack file, job, secrets, evidence, state, and boxes outside of the state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.billing.ledger import spent
from sweepstack.cli.commands.doctor import engine, platforms
from sweepstack.cli.commands.doctor.finding import Check, Finding, ask, fail, first_line, ok, unknown, warn
from sweepstack.cli.commands.doctor.machine import room
from sweepstack.cli.output import size
from sweepstack.config.engine_bounds import SHORTER, too_long
from sweepstack.config.own_files import own_files
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.paths import PACKAGE
from sweepstack.core.workdir import collect, located
from sweepstack.evidence.location import Marker
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import file_folder
from sweepstack.launch import unshipped_files
from sweepstack.launch.line_ends import crlf_scripts
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.events.channels import channels_of
from sweepstack.operations.strays.beside_sweep import search
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import NeverUp, Target
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profiles
from sweepstack.status.engine.call import find_engine
from sweepstack.status.engine.state import StackMissing, read_state

HELPERS = PACKAGE / "onbox" / "checkpoint"
PROBE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from sweepstack.onbox.runner.probe import probe
from pathlib import Path
print(json.dumps(probe(Path(sys.argv[2]), sys.argv[3], dict(os.environ), 0)))
"""
PROBE_SECONDS = 40.0


@dataclass
class CheckedSweep:
    """The sweep that is checked. `config` is None if its file is not valid."""

    target: Target
    config: StackConfig | None = None
    problem: str = ""
    problems: list[str] = field(default_factory=list)


def checks(target: Target) -> Iterator[tuple[str, Check]]:
    """(name, check), in the order of the table. Reads the stack file now: the checks use it in parallel."""
    subject = CheckedSweep(target)
    try:
        subject.config = StackConfig.load(target.root, target.stack)
    except ConfigError as error:
        subject.problem, subject.problems = str(error), error.problems
    yield "stack file", lambda: stack_file(subject)
    yield "job", lambda: job(subject)
    yield "secrets", lambda: secrets(subject)
    if subject.config is not None:
        yield from platforms.checks(subject.config)
    yield "evidence", lambda: evidence(subject)
    yield "state", lambda: state(subject)
    yield "boxes", lambda: boxes(subject)


def stack_file(subject: CheckedSweep) -> list[Finding]:
    target, config = subject.target, subject.config
    if config is None:
        return [mistakes(subject.problems or [first_line(subject.problem)], target)]
    try:
        fleet = resolve_fleet(config, load_profiles(config.candidates))
    except ConfigError as error:
        reasons = "; ".join(error.problems) or first_line(str(error))
        return [fail("stack file", f"no candidate fits: {reasons}", f"fix it in {config.file}")]
    if refused := _too_long(config):
        return [refused]
    cells = len(config.roster.cells)
    what = f"{count(cells, 'cell')} on {count(len(fleet.boxes), 'box')}"
    return [ok("stack file", f"{config.file}: {what}, {', '.join(fleet.platforms)}")]


def mistakes(found: list[str], target: Target) -> Finding:
    """The finding of an invalid stack file: its first mistake in the table, the others below it."""
    if len(found) == 1:
        return fail("stack file", found[0], f"fix it in {target.file.shown}")
    fix = "\n  ".join([f"fix it in {target.file.shown}; the others:", *found[1:]])
    return fail("stack file", f"{found[0]} (and {len(found) - 1} more)", fix)


def _too_long(config: StackConfig) -> Finding | None:
    """Fails if the config is too long for the engine."""
    said = too_long(config.key, config.raw)
    fix = f"{SHORTER}; an engine without our launcher says of it only: argument list too long"
    return fail("stack file", f"{config.file} {said}", fix) if said else None


def job(subject: CheckedSweep) -> list[Finding]:
    """What is shipped, and whether the job's script and its imports are found."""
    config, target = subject.config, subject.target
    if config is None:
        return [unknown("job", "the stack file is not valid", "fix it first")]
    try:
        workdir = located(target.root, config.job.workdir)
        own = own_files(target.root)
        shipment = collect(workdir, config.job.include, own)
        left = unshipped_files.words(workdir, shipment, own)
    except ConfigError as error:
        return [fail("work dir", first_line(str(error)), "; ".join(error.problems) or str(error))]
    found = f"{count(len(shipment.files), 'file')}, {size(shipment.bytes)} from {workdir}"
    findings = [ok("work dir", found)]
    if left:
        findings = [
            warn("work dir", "; ".join([found, *left]), "git add what the job needs, or name it in job.include")
        ]
    if scripts := [script.problem for script in crlf_scripts(workdir, shipment.files, ())]:
        findings.append(warn("scripts", scripts[0].partition(";")[0], "; ".join(scripts)))
    return [*findings, _imports(config, workdir)]


def _imports(config: StackConfig, workdir: Path) -> Finding:
    """Runs the probe of a box, with the Python of this machine's boxes."""
    if list(config.candidates) != ["local"] and "local" not in config.candidates:
        return ok("imports", "are checked on the box: its environment is another one")
    # The checkpoint helper is importable, as for a cell; and the work dir is not changed.
    argv = [sys.executable, "-c", PROBE, str(PACKAGE.parent), str(workdir), config.job.run]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(HELPERS), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=True,
        )
        problem = str(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        return unknown("imports", f"{type(error).__name__}", "sweepctl doctor --smoke, where job.smoke is set")
    problem = problem.replace("this box", "this machine")
    if not problem:
        return ok("imports", "the job's script is there and its imports resolve")
    if getattr(config.job, "setup", None):
        return warn("imports", problem.replace("this box", "this machine"), "fine, if job.setup brings it to the box")
    return fail(
        "imports", problem.replace("this box", "this machine"), "install it in this environment, or in job.setup"
    )


def secrets(subject: CheckedSweep) -> list[Finding]:
    """Whether the variables that the stack file names are set in this shell. Values are not read."""
    config = subject.config
    if config is None:
        return [unknown("secrets", "the stack file is not valid", "fix it first")]
    names = list(getattr(config.job, "secrets", ()))
    missing = [name for name in names if not os.environ.get(name)]
    findings = []
    if missing:
        fix = f"export {' '.join(f'{name}=…' for name in missing)} where you run pulumi"
        findings.append(fail("secrets", f"not set in this shell: {', '.join(missing)}", fix))
    else:
        findings.append(ok("secrets", f"set: {', '.join(names)}" if names else "the job needs none"))
    for channel in channels_of(config.events, config.budget.budget() if config.budget is not None else None):
        name, what = channel.unset(), "ntfy" if channel.topic else "webhook"
        unset = warn(what, f"{name} is not set in this shell", f"export {name}=…: no event is sent there")
        found = "its address stands in the stack file" if "://" in channel.where else f"{channel.where} is set"
        findings.append(unset if name else ok(what, found))
    return findings


def evidence(subject: CheckedSweep) -> list[Finding]:
    """The evidence: which sweep owns it, whether it can be written, the free space, and whether the ledger reads."""
    target = subject.target
    uri = target.likely_evidence()
    if uri is None:
        return [unknown("evidence", "the stack file names no folder for it", "pull_to in the stack file")]
    try:
        marker = EvidenceStore.read_marker(uri)
    except EvidenceError as error:
        return [fail("evidence", str(error), f"sweepctl status --stack {target.stack}")]
    bills = _ledger(target, uri) if marker and not target.is_store else []
    if not uri.startswith("file://"):
        return [*_whose(target, uri, marker), *bills]
    folder = Path("/" + uri.removeprefix("file://").partition("/")[2])
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return [fail("evidence", f"{there} can't be written to", "make it this user's, or name another pull_to")]
    findings = room({"evidence": folder})
    return [*_whose(target, str(folder), marker), *findings, *bills]


def _whose(target: Target, where: str, marker: Marker | None) -> list[Finding]:
    if marker is None:
        return [ok("evidence", f"{where} is not made yet")]
    if marker.stack != target.stack.rsplit("/", 1)[-1]:
        found = f"{where} holds the evidence of {marker.project}/{marker.stack}"
        return [fail("evidence", found, f"give {target.stack} its own pull_to")]
    return [ok("evidence", f"{where}, of {marker.stack} ({marker.identity})")]


def _ledger(target: Target, uri: str) -> list[Finding]:
    try:
        bills = spent(EvidenceStore.open(uri), datetime.now(UTC))
    except EvidenceError as error:
        return [fail("ledger", str(error), f"sweepctl ledger --stack {target.stack}")]
    known = f"{bills.text} for {count(len(bills.bills), 'box')}"
    if bills.complete:
        return [ok("ledger", known)]
    return [warn("ledger", known, f"sweepctl ledger --stack {target.stack}")]


def state(subject: CheckedSweep) -> list[Finding]:
    """Whether the backend has the stack, whether its entries can be read, and whether the engine's lock is free."""
    target = subject.target
    findings = []
    try:
        entries = read_state(target.stack, target.root)
        if entries.problems:
            fix = f"pulumi stack export --stack {target.stack}    (look at it)"
            findings.append(fail("state", entries.problems[0], fix))
        else:
            kept = sum(1 for volume in entries.volumes if volume.guarded)
            what = count(kept, "volume") if target.is_store else count(len(entries.boxes), "box")
            findings.append(ok("state", f"{what} in it"))
    except StackMissing:
        init = f"pulumi stack init {target.stack} && pulumi up --stack {target.stack}"
        findings.append(warn("state", f"the backend has no stack {target.stack} yet", init))
    except SweepstackError as error:
        return [fail("state", str(error), f"pulumi stack export --stack {target.stack}")]
    try:
        url = str(
            json.loads(ask([find_engine(), "whoami", "-v", "--json", "--non-interactive"], target.root).out)["url"]
        )
    except (SweepstackError, ValueError, KeyError, TypeError):
        return findings
    folder = file_folder(url)
    if folder is not None:
        findings.append(engine.lock(folder, target.stack.rsplit("/", 1)[-1], "sweepstack"))
    return findings


def boxes(subject: CheckedSweep) -> list[Finding]:
    """Boxes that run for this sweep and are not in its state."""
    target = subject.target
    try:
        sources = open_sources(target)
        births = sources.store.births() if sources.store else []
        found = search(sources.state, sources.store, births, target.file)
    except NeverUp:
        return [ok("boxes", "nothing was ever rented")]
    except SweepstackError as error:
        return [unknown("boxes", str(error), f"sweepctl status --stack {target.stack}")]
    if found.orphans:
        named = ", ".join(one.native_id or one.tag or "an entry" for one in found.orphans[:5])
        return [fail("boxes", f"not in the state: {named}", found.orphans[0].next)]
    if sources.problem or not found.searched:
        why = sources.problem or "; ".join(found.notes) or "a platform did not answer"
        return [unknown("boxes", why, f"sweepctl status --stack {target.stack}")]
    return [ok("boxes", f"{len(sources.state.boxes)} in the state, and none beside it")]
