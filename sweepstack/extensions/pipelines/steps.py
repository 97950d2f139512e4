"""What the steps of a job share: they run commands, and leave files for the step that posts them.

A step that has the keys of backend and platforms has no token of the forge, and the step that posts has no other key.
So no command that a step starts inherits the token. On GitLab all variables are in every step of a job, and a program
that looks for it there can find it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sweepstack.channel.ssh.keys import KEY_VARIABLE
from sweepstack.cli.output import NO, UNSURE, YES, aside
from sweepstack.config.edit.stack_file import valid_stack_name
from sweepstack.config.file import read_document
from sweepstack.core.paths import docs_page
from sweepstack.extensions.pipelines import oidc
from sweepstack.extensions.pipelines.forge import TOKENS
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.dataclass import asdict, dataclass, field, replace
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.status.engine.call import find_engine

SECONDS = 6 * 3600.0
"""No command of a job takes longer: GitHub ends a job after that."""
PRIVATE_KEY = "SWEEPSTACK_SSH_PRIVATE_KEY"
"""The SSH key for boxes, itself and not the path of its file: a forge's secrets are texts."""
BACKEND = "PULUMI_BACKEND_URL"
MAY_BE_EMPTY = frozenset({"PULUMI_CONFIG_PASSPHRASE"})
CHANGES = 7
"""How the engine ends where something would change and nothing was to; 1 or 255 where it could not tell (3.259)."""
RESULT = "result.json"
REVIEWED = "reviewed.json"
Kind = Literal["review", "up", "nightly"]


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed on stdout (only where it was `captured`)."""

    code: int
    out: str = ""


@dataclass(frozen=True)
class StackResult:
    """What a step found of one stack. `code`: 0 yes, 1 no, 2 could not tell. `body`: the comment's Markdown without its
    marker; `digest`: of the change that was reviewed; `change`: where the comment goes, None: the job's own; `page`:
    the file of the same review as HTML, beside the result, "" where there is none; `review`: the text of the review
    that an `up` was held to, for the job's summary; `head`: the commit that gets the status, "": the job's own.
    """

    stack: str
    code: int
    words: str
    body: str = ""
    digest: str = ""
    change: int | None = None
    page: str = ""
    review: str = ""
    head: str = ""


@dataclass(frozen=True)
class Result:
    """What a step leaves. `title` and `body` are of an issue (`nightly`); `at`: when it was written, in words."""

    kind: Kind
    stacks: list[StackResult] = field(default_factory=list)
    code: int = YES
    title: str = ""
    body: str = ""
    at: str = ""

    def write(self, folder: Path) -> None:
        """Writes it for the next step, over what was written before."""
        folder.mkdir(parents=True, exist_ok=True)
        made = replace(self, at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        write_atomically(folder / RESULT, json.dumps(asdict(made), indent=1).encode())

    @classmethod
    def read(cls, folder: Path) -> Result:
        """What the step before has left. Raises Unsure where there is nothing, or it does not read."""
        try:
            document = json.loads((folder / RESULT).read_text(encoding="utf-8"))
            stacks = [StackResult(**one) for one in document.pop("stacks")]
            return cls(stacks=stacks, **document)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise Unsure(f"the step before this one left no result in {folder} (its log says why): {error}") from error


def one_by_one(
    kind: Kind,
    into: Path,
    stacks: Sequence[str],
    of: Callable[[str], StackResult],
    cut: Callable[[str, bool], StackResult],
) -> Result:
    """What `of` finds of each stack, in this order. All that is known so far is on disk before and after each, so that
    the next step of a job that is cut can tell how far it came: `cut` gives the result of a stack that was not begun
    (False), or begun and not ended (True)."""

    def written(results: list[StackResult]) -> Result:
        result = Result(kind, results, worst([one.code for one in results]))
        result.write(into)
        return result

    found: list[StackResult] = []
    for number, stack in enumerate(stacks):
        written([*found, cut(stack, True), *(cut(later, False) for later in stacks[number + 1 :])])
        found.append(of(stack))
    return written(found)


def worst(codes: Sequence[int]) -> int:
    """The exit code for all: 1 where one said no, else 2 where one could not tell."""
    return NO if NO in codes else UNSURE if any(codes) else YES


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """The environment for commands: no token of the forge, no variable that is set to nothing (a secret that the forge
    does not have), and as files that only this user reads, until this ends, the SSH key and the token for a role of AWS
    (see `oidc.role`, which may raise)."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in (*TOKENS, *oidc.HIDDEN, PRIVATE_KEY) and (value or name in MAY_BE_EMPTY)
    }
    with tempfile.TemporaryDirectory(prefix="sweepctl-ci-") as folder, oidc.role(Path(folder)) as role:  # of mode 0700
        if key := os.environ.get(PRIVATE_KEY, ""):
            file = Path(folder) / "key"
            file.touch(mode=0o600)
            file.write_text(key.rstrip("\n") + "\n", encoding="utf-8")
            env[KEY_VARIABLE] = str(file)
        yield {**env, **role}


def need_backend(root: Path) -> None:
    """Raises No where no backend is named: a fresh runner's own folder knows no stack, and `up` would rent anew."""
    if os.environ.get(BACKEND):
        return
    project = read_document(root / "Pulumi.yaml", "Pulumi.yaml").data
    if not project.get("backend"):
        raise No(
            f"{BACKEND} is not set, and Pulumi.yaml names no backend: this runner's own folder has no state of any "
            f"stack. Make it a secret of this job ({docs_page('pipelines.md')}). A change from a fork or "
            "of a bot gets none"
        )


def sweepctl(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> Done:
    """Runs a command of this sweepctl. With `captured` its stdout is not printed."""
    return _run([str(Path(sys.executable).parent / "sweepctl"), *words], ("sweepctl", *words), root, env, captured)


def pulumi(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> Done:
    """Runs a command of the engine. With `captured` its stdout is not printed."""
    return _run([find_engine(), *words], ("pulumi", *words), root, env, captured)


def differs(root: Path, env: dict[str, str], stack: str) -> Done:
    """Whether `pulumi up` of these files would change anything, in the engine's words: code 0 no, 1 yes, 2 it could not
    tell."""
    shown = ("--suppress-progress", "--color", "never", "--non-interactive")
    done = pulumi(root, env, "preview", "--expect-no-changes", "--stack", stack, *shown, captured=True)
    return replace(done, code={YES: YES, CHANGES: NO}.get(done.code, UNSURE))


def listed(root: Path, env: dict[str, str]) -> dict[str, int | None] | None:
    """The stacks of this project that the backend has, each with the number of its resources (None: it does not say).
    None: the backend gave no list, so what it has is not known."""
    seen = pulumi(root, env, "stack", "ls", "--json", "--non-interactive", captured=True)
    try:
        rows = {str(one["name"]).rsplit("/", 1)[-1]: one.get("resourceCount") for one in json.loads(seen.out)}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return None if seen.code else {name: found if isinstance(found, int) else None for name, found in rows.items()}


def is_down(stacks: dict[str, int | None] | None, stack: str) -> bool:
    """Whether it is sure that nothing of this stack is up: `stacks` is what `listed` gave."""
    return stacks is not None and stacks.get(stack, 0) == 0


def open_stack(root: Path, env: dict[str, str], stack: str) -> int:
    """Selects the stack, and makes it in the backend where it is not there: an empty one, which costs nothing. A name
    that no new stack may have is only selected."""
    create = ("--create",) if valid_stack_name(stack) else ()
    return pulumi(root, env, "stack", "select", *create, "--stack", stack, "--non-interactive").code


@contextmanager
def empty_backend(root: Path, env: dict[str, str], stack: str) -> Iterator[dict[str, str] | None]:
    """The environment with a backend of its own that holds this stack alone, empty, until this ends; None where the
    engine did not make it. So a stack that the team's backend does not have is previewed without a write there."""
    with tempfile.TemporaryDirectory(prefix="sweepctl-ci-") as folder:
        own = {**env, BACKEND: f"file://{folder}"}
        made = pulumi(root, own, "stack", "init", "--stack", stack, "--non-interactive")
        yield None if made.code else own


def _run(command: Sequence[str], shown: Sequence[str], root: Path, env: dict[str, str], captured: bool) -> Done:
    aside(f"$ {shlex.join(shown)}")
    sys.stdout.flush()
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if captured else None,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsure(f"`{shlex.join(shown)}` did not end: {error}") from error
    return Done(done.returncode, done.stdout or "")


def document(path: Path) -> dict[str, Any]:
    """A JSON document that a command wrote; empty where there is none that reads."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def text(path: Path) -> str:
    """A text that a command wrote; "" where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
