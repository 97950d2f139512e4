"""`pulumi` and `sweepctl` as processes of their own, without the engine and without paying their imports each time.

    PYTHONPATH=CHECKOUT python tests/states/stand_in.py FD

imports the checkout's program, provider and command line once, and forks for each command that is asked for over the
socket FD. What a child runs is the real program (over the SDK's mocks), the real handlers (`provider.dispatch`), and
the real `sweepctl`. What stands in is the engine alone: refresh, check, diff, create, update, delete, and the state
in the file backend's own format. Imports nothing of `tests`: the checkout may be another one.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

KINDS = ("Identity", "Volume", "Box", "Queue", "Gate")
"""In the order in which they are made; they are deleted in the opposite one."""
NEW_NAMESPACES = 0x00020000 | 0x04000000
"""CLONE_NEWNS and CLONE_NEWUTS: a command may see a file system that is read-only, and another host name."""


class Failed(Exception):
    """The command of the engine ends here, with these words."""


class Engine:
    """One command of the engine for one stack."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        url = os.environ["PULUMI_BACKEND_URL"].removeprefix("file://")
        self.file = Path(url) / ".pulumi" / "stacks" / project() / f"{stack}.json"

    def load(self) -> list[dict[str, Any]]:
        if not self.file.is_file():
            raise Failed(f"no stack named '{self.stack}' found")
        try:
            kept = (json.loads(self.file.read_text())["checkpoint"]["latest"] or {}).get("resources") or []
            return [spelled("inside", one) for one in kept]
        except (ValueError, TypeError, KeyError) as error:
            raise Failed(f"failed to load checkpoint: {error}") from error

    def save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        latest = {"resources": [spelled("outside", one) for one in self.resources]} if self.resources else {}
        if self.file.is_file():
            shutil.copyfile(self.file, f"{self.file}.bak")
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps({"version": 3, "checkpoint": {"stack": self.stack, "latest": latest}}))
        beside.replace(self.file)

    def keep(self) -> None:
        """The copy that the engine makes at the end of each command that changes something."""
        self.kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.file, self.kept / f"{self.stack}.{time.time_ns()}.json")

    @property
    def kept(self) -> Path:
        return self.file.parents[2] / "backups" / self.file.parent.name / self.stack

    def operation(self, urn: str) -> Any:
        from sweepstack.provider.session import Operation

        return Operation(self.session, urn)

    def begin(self) -> None:
        from sweepstack.provider.session import Session, Severity

        def emit(severity: Severity, _urn: str, text: str) -> None:
            if severity is not Severity.PROGRESS:
                say(f"{severity.value}: {text}")

        self.session = Session(Path.cwd(), emit)
        self.resources = self.load()
        kept = []
        for resource in self.resources:
            if ours(resource):
                seen = self.answered(resource, "read", resource["id"], resource["inputs"], resource["outputs"])
                if seen is None:
                    continue
                resource["inputs"], resource["outputs"], unhealthy = seen
                resource.pop("initErrors", None)
                if unhealthy:
                    resource["initErrors"] = list(unhealthy)
                    say("warning: " + "; ".join(unhealthy))
            kept.append(resource)
        self.resources = kept
        self.save()

    def answered(self, resource: dict[str, Any], verb: str, *words: Any) -> Any:
        """What the provider answers. Raises Failed."""
        from sweepstack.onbox.common.errors import SweepstackError
        from sweepstack.provider import dispatch

        try:
            return getattr(dispatch, verb)(self.operation(resource["urn"]), *words)
        except SweepstackError as error:
            raise Failed(f"{resource['urn'].rsplit('$', 1)[-1]}: {error}") from error

    def up(self) -> None:
        wanted: set[str] = set()
        lock = threading.Lock()
        problems: list[str] = []

        def register(urn: str, kind: str, news: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            with lock:
                if problems:
                    raise Failed("not reached")
                wanted.add(urn)
                try:
                    made = self.step(urn, kind, news)
                except Failed as error:
                    problems.append(str(error))
                    raise
                finally:
                    self.save()
                return made["id"], made["outputs"]

        run_program(self.stack, self.session, register, problems)
        if problems:
            raise Failed(problems[0])
        for resource in self.in_order(lambda one: one["urn"] not in wanted):
            self.delete(resource)

    def step(self, urn: str, kind: str, news: dict[str, Any]) -> dict[str, Any]:
        """One resource that the program asks for: made, changed, replaced, or left alone."""
        from sweepstack.core import spelling
        from sweepstack.onbox.common.errors import StillCreating, SweepstackError

        news = spelling.inside(kind, news)
        old = next((one for one in self.resources if one["urn"] == urn), None)
        entry = {"urn": urn, "custom": True, "type": kind}
        olds = old["inputs"] if old else {}
        inputs, failures = self.answered(entry, "check", olds, {k: v for k, v in news.items() if v is not None})
        if failures:
            raise Failed("; ".join(f"{one.property}: {one.reason}" for one in failures))
        from sweepstack.provider import dispatch

        op = self.operation(urn)
        try:
            if old is not None:
                found = self.answered(old, "diff", old["inputs"], old["outputs"], inputs)
                if found.replaces:
                    self.delete(old)
                    old = None
                elif found.changed or old.get("initErrors"):
                    outputs = dispatch.update(op, old["id"], old["inputs"], old["outputs"], inputs)
                    old.update(inputs=inputs, outputs=outputs)
                    old.pop("initErrors", None)
                    return old
                else:
                    old["inputs"] = inputs
                    return old
            identifier, outputs = dispatch.create(op, inputs)
            made = {**entry, "id": identifier, "inputs": inputs, "outputs": outputs}
            self.resources.append(made)
            return made
        except StillCreating as error:
            reasons = list(error.reasons)
            made = {**entry, "id": error.identifier, "inputs": inputs, "outputs": error.outputs, "initErrors": reasons}
            self.resources = [one for one in self.resources if one["urn"] != urn] + [made]
            raise Failed("; ".join(reasons)) from error
        except SweepstackError as error:
            raise Failed(str(error)) from error

    def destroy(self, targets: list[str]) -> None:
        for resource in self.in_order(lambda one: not targets or one["urn"] in targets):
            self.delete(resource)

    def in_order(self, which: Any) -> list[dict[str, Any]]:
        chosen = [one for one in self.resources if ours(one) and which(one)]
        return sorted(chosen, key=lambda one: -KINDS.index(one["type"].rsplit(":", 1)[-1]))

    def delete(self, resource: dict[str, Any]) -> None:
        self.answered(resource, "delete", resource["id"], resource["inputs"], resource["outputs"])
        self.resources = [one for one in self.resources if one is not resource]
        self.save()


def spelled(how: str, resource: dict[str, Any]) -> dict[str, Any]:
    """An entry of the state with the names of the models (`inside`), as handlers have them, or of the schema."""
    from sweepstack.core import spelling

    names = getattr(spelling, how)
    return {**resource, **{part: names(resource["type"], resource.get(part, {})) for part in ("inputs", "outputs")}}


def ours(resource: dict[str, Any]) -> bool:
    return bool(resource.get("custom")) and str(resource["type"]).startswith("sweepstack:index:")


def project() -> str:
    found = re.search(r"^name: *(\S+)", Path("Pulumi.yaml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def say(text: str) -> None:
    print(text, flush=True)


def run_program(stack: str, session: Any, register: Any, problems: list[str]) -> None:
    """The checkout's program. What it asks for goes to `register`; what is wrong with it, into `problems`."""
    import pulumi
    from pulumi.runtime import mocks as pulumi_mocks

    from components.program import one_message, program
    from sweepstack.core import spelling
    from sweepstack.provider import split_invoke

    class Answers(pulumi_mocks.Mocks):
        def new_resource(self, args: Any) -> tuple[str, dict[str, Any]]:
            if not args.custom or not args.typ.startswith("sweepstack:index:"):
                return "", {}
            urn = f"urn:pulumi:{stack}::{project()}::{args.typ}::{args.name}"
            identifier, outputs = register(urn, args.typ, dict(args.inputs))
            return identifier, {**args.inputs, **spelling.outside(args.typ, outputs)}

        def call(self, args: Any) -> dict[str, Any]:
            return split_invoke.invoke(session, args.token, args.args)

    pulumi.log.error = lambda text, *_: problems.append(text)  # type: ignore[assignment]
    pulumi.log.warn = lambda text, *_: say(f"warning: {text}")  # type: ignore[assignment]
    pulumi.log.info = lambda text, *_: say(text)  # type: ignore[assignment]
    pulumi.runtime.set_mocks(Answers(), project=project(), stack=stack, preview=False)

    @pulumi.runtime.test
    def run() -> None:
        with one_message():
            program(Path.cwd()).export()

    try:
        run()
    except (SystemExit, Exception) as error:
        problems or problems.append(f"the program failed: {error!r}")


def pulumi(words: list[str]) -> int:
    """The verbs of the engine that tests, people and `sweepctl` use."""
    named = [words[i + 1] for i, word in enumerate(words) if word == "--stack"]
    targets = [words[i + 1] for i, word in enumerate(words) if word == "--target"]
    try:
        match words[0]:
            case "whoami":
                say(json.dumps({"url": os.environ["PULUMI_BACKEND_URL"]}))
            case "stack" if words[1] == "ls":
                folder = Engine("x").file.parent
                say(json.dumps([{"name": path.stem} for path in sorted(folder.glob("*.json"))]))
            case "stack" if words[1] == "init":
                engine = Engine(words[2])
                engine.resources = []
                engine.save()
            case "stack" if words[1] == "history":
                say(json.dumps([{"kind": "update"} for _ in Engine(named[0]).kept.glob("*.json")]))
            case "stack" if words[1] == "export":
                kept = [spelled("outside", one) for one in Engine(named[0]).load()]
                say(json.dumps({"version": 3, "deployment": {"resources": kept}}))
            case "up" | "destroy" as verb:
                engine = Engine(named[0])
                engine.begin()
                try:
                    engine.up() if verb == "up" else engine.destroy(targets)
                finally:
                    engine.keep()
            case "refresh":
                engine = Engine(named[0])
                engine.save = lambda: None  # type: ignore[method-assign]
                engine.begin()
            case _:
                raise AssertionError(f"the stand-in of the engine has no {words}")
    except Failed as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


class Person(io.StringIO):
    """Sits at the terminal, and types what the question says that counts."""

    def isatty(self) -> bool:
        return True

    def readline(self, *_: Any) -> str:
        asked = "".join(said_to_person)
        found = re.search(r"\(([^()]+)\): *$", asked)
        sys.stderr.write("\n")  # as the terminal echoes it: what is said next begins a line
        return (found[1] if found else "yes") + "\n"


said_to_person: list[str] = []


def sweepctl(words: list[str]) -> int:
    """The real command, whose engine is this one, with a person at its terminal."""
    import sweepstack.cli.commands.finish
    import sweepstack.cli.prompt
    import sweepstack.status.engine.call
    from sweepstack.cli.app import app

    def run(command: list[str], captured: bool = False, backend: str = "", **_: Any) -> Any:
        """A command of the engine as a child, as the real one is."""
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = os.memfd_create("out"), os.memfd_create("err")
        pid = os.fork()
        if pid == 0:
            if backend:
                os.environ["PULUMI_BACKEND_URL"] = backend
            if captured:
                os.dup2(out, 1)
                os.dup2(err, 2)
            leave(pulumi(command[1:]))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        read = [os.pread(handle, os.fstat(handle).st_size, 0) for handle in (out, err)]
        os.close(out)
        os.close(err)
        return subprocess.CompletedProcess(command, code, *read)

    class Call:
        def __init__(self, command: list[str], root: Path, backend: str = "") -> None:
            self.root, self.backend = root, backend
            self.shown = f"pulumi {' '.join(command[1:3])}"
            self._done = run(command, captured=True, backend=backend)

        def answer(self) -> tuple[int, bytes, str]:
            said = self._done.stderr.decode("utf-8", "replace").strip().removeprefix("error: ")
            return self._done.returncode, self._done.stdout, said

    real: Any = sweepstack.status.engine.call.EngineCall
    real.__init__, real.answer = Call.__init__, Call.answer
    sweepstack.cli.commands.finish.subprocess = SimpleNamespace(run=run)  # type: ignore[attr-defined]
    write = sys.stderr.write

    def heard(text: str) -> int:
        said_to_person.append(text)
        return write(text)

    sys.stderr.write = heard  # type: ignore[method-assign]
    sys.stdin = Person()
    try:
        app(words)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# ------------------------------------------------------------- forking


def import_all() -> None:
    """Everything that a command imports on its way. No power is cut here, and copies are loaded in the process."""
    import pulumi.runtime.mocks
    import pulumi.runtime.stack  # noqa: F401

    import components.from_config  # noqa: F401
    import sweepstack.cli.app
    import sweepstack.evidence.verify
    import sweepstack.launch.first_step
    import sweepstack.onbox.host.folder_platform
    import sweepstack.provider.dispatch
    import sweepstack.provider.resources.box
    import sweepstack.provider.split_invoke
    from sweepstack.cli import app as app_module
    from sweepstack.loaders.load import load

    app_module.all_commands()
    for token in sweepstack.provider.dispatch.HANDLERS:
        sweepstack.provider.dispatch.handler_for(token)

    def read_here(jobs: Any, **_: Any) -> Any:
        for job in jobs:
            yield job, load(job.path, job.spec, job.sha256, expected_size=job.size)

    sweepstack.evidence.verify.read_all = read_here  # type: ignore[assignment]
    sweepstack.launch.first_step.SETTLE_SECONDS = 0.0
    sweepstack.launch.first_step.POLL_SECONDS = 0.02
    sweepstack.provider.resources.box.POLL_SECONDS = 0.02
    os.fsync = lambda _: None
    assert threading.active_count() == 1, "a process with threads can't be forked"


def live(told: dict[str, Any], fds: list[int]) -> None:
    """One command, in the child."""
    os.setsid()
    for number, handle in enumerate(fds, 1):
        os.dup2(handle, number)
    for name in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(told["env"])
    if told["host"] or told["read_only"]:
        another_world(told["host"], told["read_only"])
    os.chdir(told["cwd"])
    argv = told["argv"]
    sys.argv = argv
    try:
        code = {"pulumi": pulumi, "sweepctl": sweepctl}[argv[0]](argv[1:])
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    leave(code)


def another_world(host: str, read_only: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACES) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if host:
        socket.sethostname(host)
    for folder in read_only:
        for flags in (["--bind", folder, folder], ["-o", "remount,bind,ro", folder]):
            subprocess.run(["mount", *flags], check=True, stdin=subprocess.DEVNULL)


def main(handle: int) -> None:
    sock = socket.socket(fileno=handle)
    import_all()
    sock.sendall(b"!")
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 2)
        if not data:
            return
        length = int.from_bytes(data[:4], "big")
        while len(data) < length + 4:
            data += sock.recv(1 << 16)
        pid = os.fork()
        if pid == 0:
            sock.close()
            live(json.loads(data[4:]), fds)
        for fd in fds:
            os.close(fd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sock.sendall(json.dumps({"pid": pid, "code": code}).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
