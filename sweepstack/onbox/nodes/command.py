"""What `job.run` has to look like for a cell over several nodes, and what runs on each node then.

    torchrun [options] train.py …      the job's own options stay; ours are added
    python train.py …                  torchrun runs the script, with one process a GPU, or one
    python -m package.train …          the same

One command and nothing else: a second one (`&&`, `;`, a pipe) would run on every node, too.
"""

from __future__ import annotations

import re
import shlex

NODES = "SWEEPSTACK_NODES"
"""The variable of a cell that says on how many nodes it runs; it is a part of its version."""
PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")
LEADING = re.compile(r"\s*(\S+)\s*")
OURS = (
    *("nnodes", "node-rank", "master-addr", "master-port", "local-addr", "standalone"),
    *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
)
"""Options of torchrun that say where the nodes are: we give them."""
RESTARTS = "max-restarts"
PROCESSES = "nproc-per-node"
HOW = "start it with `torchrun train.py …` or `python train.py …`: it is run on each node by torchrun"


def refusal(run: str) -> str:
    """Why this command can't run on several nodes, with the fix; "" where it can."""
    words = shlex.shlex(run, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    try:
        found = list(words)
    except ValueError as error:
        return f"can't be read as one shell command ({error})"
    first = found[0] if found else ""
    if first == "horovodrun":
        return (
            "horovodrun pauses in silence below --min-np, and ends only after HOROVOD_ELASTIC_TIMEOUT (600 s): several "
            f"nodes run by torchrun alone; {HOW}"
        )
    if any(set(word) <= set("();<>|&") for word in found):
        return "has to be one command without `;`, `&&`, pipes or redirections: each node would run all of it"
    if first == "torchrun":
        return _options(found[1:])
    if PYTHON.fullmatch(first) is None:
        return f"begins with {first or 'nothing'}; {HOW}"
    if len(found) < 2 or (found[1].startswith("-") and found[1] != "-m"):
        return f"gives {first} an option of its own, which torchrun does not pass on; {HOW}"
    return ""


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
    found = LEADING.match(run)
    assert found is not None
    first, rest = found[1], run[found.end() :]
    own = any(name in rest.partition(".py")[0] for name in (PROCESSES, PROCESSES.replace("-", "_")))
    count = "" if first == "torchrun" and own else f"--{PROCESSES}={processes} "
    start = first if first == "torchrun" else f"{first} -m torch.distributed.run"
    return f"exec {start} {options} --max-restarts=0 {count}{rest}"
