"""What `job.run` has to look like for a cell over several nodes, and what runs on each node then.

    torchrun [options] train.py …      the job's own options stay; ours are added
    python train.py …                  torchrun runs the script, with one process a GPU, or one
    python -m package.train …          the same

Either may be a path (`/opt/env/bin/python`). Before it may stand what chooses the Python, on each node: steps that end
with `&&` (`. /opt/env/bin/activate`, `module load cuda`, `export …`), and `apptainer exec … image.sif`. Nothing else: a
second command (`&&`, `;`, a pipe) would run on every node, too.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from sweepstack.onbox.common.placeholders import PLACEHOLDER

WORD = re.compile(r"""(?:[^\s;&|<>()"'\\]|"(?:\\.|[^"\\])*"|'[^']*'|\\.)+|[;&|<>()]+""")
START = re.compile(r"(?:[\w./+~$-]*/)?(torchrun|python(?:3(?:\.[0-9]+)?)?)")
OPERATORS = "();<>|&"
STEPS = (".", "module", "ml", "export")
"""What may choose the Python before the command; the shell is `sh`, which has no `source`."""
CONTAINERS = ("apptainer", "singularity")
BEHIND = (
    'f=$(command -v "$0") || { echo "there is no $0" >&2; exit 127; }; p=$(sed -n "1s/^#! *//p" "$f"); '
    'case $p in *python*) ;; *) p=${f%/*}/python ;; esac; exec $p -c "$1" "$2"'
)
"""Runs a program in the interpreter of torchrun, `$0`: that of its first line, else the one beside it."""
OURS = (
    *("nnodes", "node-rank", "master-addr", "master-port", "local-addr", "standalone"),
    *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
)
"""Options of torchrun that say where the nodes are: we give them."""
RESTARTS = "max-restarts"
PROCESSES = "nproc-per-node"
HOW = (
    "start it with `torchrun train.py …` or `python train.py …`, also by a path, after `. env/bin/activate &&` or "
    "`module load … &&`, or in `apptainer exec …`: it is run on each node by torchrun"
)


class Parts(NamedTuple):
    """A command as it was written: `steps` with their last `&&`, the container's words, `start` (torchrun or a Python),
    and the rest."""

    steps: str
    container: str
    start: str
    rest: str

    @property
    def torchrun(self) -> bool:
        return self.start.rpartition("/")[2] == "torchrun"


def parts(run: str) -> Parts:
    """Its parts; `start` is the word at which torchrun or a Python was expected, whatever it is."""
    words = list(WORD.finditer(run))
    first = 0
    while first < len(words) and words[first][0] in STEPS:
        ends = [at for at in range(first, len(words)) if words[at][0] == "&&"]
        if not ends:
            break
        first = ends[0] + 1
    start = first
    if first < len(words) and words[first][0].rpartition("/")[2] in CONTAINERS:
        ends = [at for at in range(first, len(words)) if START.fullmatch(words[at][0]) or words[at][0][0] in OPERATORS]
        start = ends[0] if ends else first
    if start >= len(words):
        return Parts(run, "", "", "")
    begin, found = words[first].start(), words[start]
    return Parts(run[:begin], run[begin : found.start()], found[0], run[found.end() :].lstrip())


def refusal(run: str) -> str:
    """Why this command can't run on several nodes, with the fix; "" where it can."""
    try:
        found = parts(run)
        first, rest = found.start, found.rest
        before, after = _words(run[: len(run) - len(rest)]), _words(rest)
    except ValueError as error:
        return f"can't be read as one shell command ({error})"
    if first == "horovodrun":
        return (
            "horovodrun pauses in silence below --min-np, and ends only after HOROVOD_ELASTIC_TIMEOUT (600 s): several "
            f"nodes run by torchrun alone; {HOW}"
        )
    if any(set(word) <= set(OPERATORS) for word in [*(one for one in before if one != "&&"), *after]):
        return "has to be one command without `;`, `&&`, pipes or redirections: each node would run all of it"
    if PLACEHOLDER.search(run[: len(run) - len(rest)]):
        return "has a placeholder before its script: all cells of a version have the same Python, which is looked at"
    if START.fullmatch(first) is None:
        return f"begins with {first or 'nothing'}; {HOW}"
    if found.torchrun:
        return _options(after)
    if not after or (after[0].startswith("-") and after[0] != "-m"):
        return f"gives {first} an option of its own, which torchrun does not pass on; {HOW}"
    return ""


def _words(text: str) -> list[str]:
    words = shlex.shlex(text, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    return list(words)


def probe_command(run: str) -> str:
    """The shell command that runs a Python program, `$1` with its argument `$2`, in the interpreter that `run` uses."""
    steps, container, start, _ = found = parts(run)
    if found.torchrun:
        return f'{steps}exec {container}sh -c {shlex.quote(BEHIND)} {start} "$1" "$2"'
    return f'{steps}exec {container}{start} -c "$1" "$2"'


def _options(words: list[str]) -> str:
    for word in words:
        if not word.startswith("-"):
            if word.endswith(".py"):
                return ""
            continue
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        if name in ("m", "module"):
            return ""
        if name in OURS:
            return f"says --{name}, which sweepstack sets itself on each node: take it out"
        if name == RESTARTS:
            return (
                "says --max-restarts: a restart by torchrun brings no state to the other nodes. job.retries is how "
                "often a cell is tried again, each time from its newest checkpoint; take it out"
            )
    return ""


def on_each_node(run: str, options: str, processes: int) -> str:
    """The shell command of one node. `options`: torchrun's, for this node. `processes`: on each node, unless the
    command says it."""
    steps, container, first, rest = found = parts(run)
    own = any(name in rest.partition(".py")[0] for name in (PROCESSES, PROCESSES.replace("-", "_")))
    count = "" if found.torchrun and own else f"--{PROCESSES}={processes} "
    start = first if found.torchrun else f"{first} -m torch.distributed.run"
    return f"{steps}exec {container}{start} {options} --max-restarts=0 {count}{rest}"
