"""The set-up steps of a host, joined into the one shell script that a box runs over SSH.

Neither the text of a step nor its stdin may hold a secret: both are inputs of a command resource, so they lie in the
engine's state and are printed where they change. A step is run again after any change, on a new box, and when
a stopped one is wanted again: it has to be idempotent. The caller can't cut the script, so each step carries its
own deadline.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

STEP_SECONDS = 300
LOCK_SECONDS = 900
"""For another command that sets the same host up at this moment, and for what a lost connection left running."""
BOX, ROOT = "SWEEPSTACK_BOX", "SWEEPSTACK_ROOT"
"""What every step finds in its environment: the box's native id, and the folder of the host that boxes lie below."""
_FACT = re.compile(r"([a-z][a-z0-9_]*)=([^\0]*)")
_NAME = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Step:
    """One thing that is done on a host.

    `create`: a command line for `sh`, idempotent. `stdin`: what it reads, None for nothing. `about`: what it does, for
    people, shown while it runs. `seconds`: its deadline. Lines `key=value` on its stdout are facts about the host, kept
    in the state and shown; all else that it says belongs on stderr, and there only what a person would read.
    """

    name: str
    create: str
    stdin: str | None
    about: str
    seconds: int = STEP_SECONDS

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or "\0" in self.create + (self.stdin or "") or self.seconds < 1:
            raise ValueError(f"{self.name!r} is no step: a name such as `mirrors`, text without NUL, a deadline")


def script(steps: Iterable[Step], *, box: str, root: str = "") -> str:
    """The steps, in order, as a script for `sh -s`; the first that fails ends it, and the last line says which.

    `box`: native id, `root`: the folder below which boxes lie, "" for the login's default; steps find both in the
    environment. Two scripts on one host wait for each other where `flock` is there. The text differs when, and only
    when, there is something to do: the person who keeps it runs it again when it changes.
    """
    lines = [_HEAD.format(box=shlex.quote(box), box_name=BOX, root=shlex.quote(root), root_name=ROOT)]
    for step in steps:
        words = [step.name, str(step.seconds), step.about, step.create]
        call = f"step {' '.join(shlex.quote(word) for word in words)}"
        lines.append(call if step.stdin is None else f"printf %s {shlex.quote(step.stdin)} | {call}")
        lines.append("[ $? = 0 ] || exit 1")
    # A whole function is read before any of it runs: a step can't read the rest of the script as its stdin.
    return "\n".join([*lines, "}", "main </dev/null", ""])


def facts(stdout: str) -> dict[str, str]:
    """The facts that the steps' stdout holds, in order; other lines are left out. Of two, the last one counts."""
    found = (_FACT.fullmatch(line.strip()) for line in stdout.splitlines())
    return {match[1]: match[2].strip() for match in found if match is not None}


_HEAD = """\
main() {{
{box_name}={box}
{root_name}={root}
: "${{{root_name}:=${{XDG_DATA_HOME:-$HOME/.local/share}}/sweepstack/local}}"
export {box_name} {root_name}
step() {{
    printf '%s: %s\\n' "$1" "$3" >&2
    if command -v timeout >/dev/null 2>&1; then
        timeout -k 5 "$2" sh -c "$4" 9>&-
    else
        sh -c "$4" 9>&-
    fi
    said=$?
    [ "$said" = 0 ] && return 0
    [ "$said" = 124 ] && echo "$1: not done after $2 s, and ended" >&2
    stop "its set-up stopped at $1 (exit code $said)"
    return 1
}}
stop() {{ echo "this host is not set up: $1. Fix it there; then: pulumi up" >&2; }}
mkdir -p "${root_name}" || {{ stop "${root_name} can't be made"; exit 1; }}
(: >>"${root_name}/setup.lock") || {{ stop "${root_name}/setup.lock can't be written"; exit 1; }}
exec 9>>"${root_name}/setup.lock"
if command -v flock >/dev/null 2>&1; then
    flock -w {lock} 9 || {{ stop "another command has been at it for {lock} s"; exit 1; }}
fi""".replace("{lock}", str(LOCK_SECONDS))
