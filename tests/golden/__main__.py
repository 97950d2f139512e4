"""Makes the golden sweep of an issue: `python -m tests.golden F`, about a minute. Those that are there stay.

The commands of a new user make it, with the real engine: two boxes, a cell that fails and is waived, one that is
dropped, one that runs twice; pulled, verified, approved, and ended. Since K2 under a policy, which its state has. Since
K4 the one that runs twice fails with a checkpoint, is asked for again by the stack file, and goes on in new code.
Since M its state has the names of schema 2. `python -m tests.golden F host` has one box, behind a real sshd,
`… F slurm` one with two workers on a real cluster.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.core.schema import STATE
from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.rented.host_stack import HostStack
from tests.rented.slurm_stack import SlurmStack

HERE = Path(__file__).parent
KINDS = ("", "host", "slurm")
CELLS = ("seed0", "seed1", "seed2", "seed3")


def make(base: Path, kind: str = "") -> dict[str, bytes]:
    """Path → content: `locked.json` and `cleared.json` (states), `stack.yaml`, and `evidence/…` of the end."""
    stack, end = _stack(base, kind)
    kept = {}
    try:
        stack.write_config()
        stack.edit_config(lambda sweep: sweep["cells"].update(drop={"seed3": "not needed"}))
        saves = "echo 1 > {checkpoints}/step-1 && "
        across = {"resume": "across-code", "mixing": "allow", "retries": 0}
        stack.edit_config(lambda sweep: sweep["job"].update(across, run=saves + sweep["job"]["run"]))
        stack.init()
        (stack.checkout / "policy.yaml").write_text("max_expiry: 72h\n")
        stack.tell("fail", "seed0")
        stack.tell("fail", "seed2")
        stack.up()  # says that cells failed
        stack.wait_for(lambda: "seed1" in stack.sealed(), "one to be sealed")
        stack.wait_idle()
        (stack.control / "fail-seed0").unlink()
        code = stack.job / "train.py"
        code.write_text(code.read_text() + "# the bug is gone\n")
        stack.edit_config(lambda sweep: sweep["cells"].update(retry={"seed0": 1}))
        ok(stack.up())
        stack.wait_for(lambda: {"seed0", "seed1"} <= stack.sealed(), "seed0 to run again")
        stack.wait_idle()
        kept["locked.json"] = ok(stack.pulumi("stack", "export")).out.encode()
        ok(stack.sweepctl("pull"))
        receipt = stack.verify()["receipt"]
        ok(stack.sweepctl("give-up", receipt, "cell/seed2", "--reason", "it diverged"))
        ok(stack.up())
        kept["cleared.json"] = ok(stack.pulumi("stack", "export")).out.encode()
        kept["stack.yaml"] = stack.config_file.read_bytes()
        ok(stack.destroy())
    finally:
        end()
    for path in sorted(stack.evidence.rglob("*")):
        if path.is_file():
            kept[f"evidence/{path.relative_to(stack.evidence)}"] = path.read_bytes()
    return kept


def _stack(base: Path, kind: str) -> tuple[Stack, Callable[[], None]]:
    """The sweep, and what ends all that runs for it."""
    if not kind:
        local = Stack(base, cells=CELLS)
        return local, local.close
    if kind == "host":
        host = HostStack(base, cells=CELLS)
        return host, host.end
    cluster = SlurmStack(base, cells=CELLS)
    return cluster, cluster.end


def main(argv: Sequence[str]) -> None:
    """Writes `schema-N-DATE-ISSUE.tar.xz` beside this file, or `…-ISSUE-KIND.tar.xz`."""
    if not 1 <= len(argv) <= 2 or (kind := "".join(argv[1:])) not in KINDS:
        raise SystemExit("usage: python -m tests.golden ISSUE [host|slurm]")
    path = HERE / f"schema-{STATE}-{datetime.now(UTC):%Y-%m-%d}-{'-'.join(argv)}.tar.xz"
    if path.exists():
        raise SystemExit(f"{path.name} is there: a golden sweep is never made again")
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        files = make(Path(folder) / "sweep", kind)
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    print(json.dumps({"wrote": path.name, "files": len(files), "bytes": path.stat().st_size}))


if __name__ == "__main__":
    main(sys.argv[1:])
