"""The set-up steps of a host, joined into the one shell script that a box runs over SSH.

Neither the text of a step nor its stdin may hold a secret: both are inputs of a command resource, so they lie in the
engine's state and are printed where they change. A step is run again after any change, on a new box, and when
a stopped one is wanted again: it has to be idempotent. The caller can't cut the script, so each step carries its
own deadline.

Three steps are below: what the host is, as facts that the state keeps and `pulumi up` shows; that its durable tier is
mounted, which after a restart it may not be; its proxy and mirrors, before a queue relies on them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from sweepstack.channel.interpreters import PYTHON, finding
from sweepstack.onbox.common.dataclass import dataclass

PREFLIGHT, TIERS, NETWORK = "preflight", "tiers", "network"
"""The names of the steps, in their order."""
STEP_SECONDS = 300
LOCK_SECONDS = 900
"""For another command that sets the same host up at this moment, and for what a lost connection left running."""
BOX, ROOT = "SWEEPSTACK_BOX", "SWEEPSTACK_ROOT"
"""What every step finds in its environment: the box's native id, and the folder of the host that boxes lie below."""
_FACT = re.compile(r"([a-z][a-z0-9_]*)=([^\0]*)")
_NAME = re.compile(r"[a-z][a-z0-9-]*")

_LOOK_AT_HOST = r"""
"$q" -c 'import sys; print("python=%d.%d.%d" % sys.version_info[:3]); sys.exit(sys.version_info < (3, 8))' || {
    echo "$q is missing here, or older than Python 3.8, which everything on a box needs" >&2; exit 1; }
echo "clock=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
df -Pk "$SWEEPSTACK_ROOT" | awk 'NR == 2 { print "free_gb=" int($4 / 976562.5) }'
df -Pi "$SWEEPSTACK_ROOT" 2>/dev/null | awk 'NR == 2 && $4 ~ /^[0-9]+$/ { print "free_inodes=" $4 }'
echo "system=$(uname -sm)"
"""


_LOOK_AT_TIERS = r"""
for mount in "$@"; do
    at="$SWEEPSTACK_ROOT/boxes/$SWEEPSTACK_BOX/$mount"
    [ -L "$at" ] || {
        echo "$mount of this box is no link to a tier that survives it: the box was made without" >&2
        exit 1; }
    [ -r "$at/place.json" ] || {
        echo "$(readlink "$at") is not there: its file system is not mounted. Mount it in the platform's console" >&2
        exit 1; }
    name=$(echo "$mount" | sed 's/^mnt.//; s/[^a-z0-9]/_/g')
    echo "tier_$name=$(readlink "$at") ($(sed 's/.*"id":"\([^"]*\)".*/\1/' "$at/place.json"))"
    df -Pk "$at" | awk -v n="$name" 'NR == 2 { print "tier_" n "_free_gb=" int($4 / 976562.5) }'
    df -Pi "$at" 2>/dev/null | awk -v n="$name" 'NR == 2 && $4 ~ /^[0-9]+$/ { print "tier_" n "_free_inodes=" $4 }'
done
"""

_TRY_NETWORK = r"""
import json, os, subprocess, sys, urllib.error, urllib.request
from urllib.parse import urlsplit
told, proxy = json.loads(sys.argv[1]), "none"
urls = {
    name: value if "://" in value else "https://" + value
    for name, value in sorted(told.get("env", {}).items())
    if "://" in value or name.endswith("_DOMAIN")
}
if told.get("proxy_on"):
    proxy = "for single calls"
if told.get("proxy_always"):
    script = "{ %s\n} >&2 || exit\nexec env -0" % told["proxy_on"]
    done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=30)
    if done.returncode:
        sys.exit("the proxy's line failed with %d. Fix it, or overrides: network: {proxy: false}" % done.returncode)
    found = dict(one.decode("utf-8", "replace").partition("=")[::2] for one in done.stdout.split(b"\0") if one)
    on = {name: found[name] for name in ("http_proxy", "https_proxy") if found.get(name)}
    proxy = "on" if on else "its line sets none"
    past = ["127.0.0.1", "localhost", *(urlsplit(url).hostname or "" for url in urls.values())]
    os.environ.update(on, no_proxy=",".join(past))
print("proxy=" + proxy)
for name, url in urls.items():
    try:
        urllib.request.urlopen(url, timeout=15).close()
        said = "answers"
    except urllib.error.HTTPError:
        said = "answers"
    except (OSError, ValueError) as error:
        said = "does not answer: %s" % error
    print("route_%s=%s" % (name.lower(), said))
"""
NETWORK_SECONDS = 180


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


def preflight(python: str = PYTHON) -> Step:
    """`python`: see `finding`. Facts: python, clock (UTC, when it was looked at), free_gb, free_inodes (absent where
    the file system does not count them), system. Fails without Python 3.8."""
    return Step(PREFLIGHT, f"sh -c {shlex.quote(finding(python) + _LOOK_AT_HOST)}", None, "looking at the host")


def tiers(mounts: Iterable[str]) -> Step:
    """`mounts`: paths on the box (`mnt/durable`) that show a place of the host. Facts: where each lies and its id, what
    is free there (inodes are absent where the file system does not count them). Fails where one is not mounted."""
    words = " ".join(shlex.quote(mount) for mount in sorted(mounts))
    return Step(TIERS, f"sh -c {shlex.quote(_LOOK_AT_TIERS)} sh {words}", None, "looking at what outlives it")


def network(told: Mapping[str, Any], python: str = PYTHON) -> Step:
    """`told`: what the queue is told of the network (`env`, `proxy_on`, `proxy_always`). Facts: proxy (on, none, for
    single calls, or that its line sets none), and of each mirror whether it answers. Fails where the proxy's line
    does; a mirror that is away is a fact, since the job may not need it."""
    words = f'{finding(python)}; "$q" - {shlex.quote(json.dumps(dict(told), sort_keys=True))}'
    return Step(NETWORK, words, _TRY_NETWORK, "looking at its way to the world", NETWORK_SECONDS)
