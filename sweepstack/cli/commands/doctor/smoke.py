"""`sweepctl doctor --smoke`: a short trial run of the job here, as before each `pulumi up`."""

from __future__ import annotations

from sweepstack.cli.output import YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.config.own_files import own_files
from sweepstack.config.smoke import configured_smoke
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.workdir import collect, located
from sweepstack.launch.smoke import SmokeFailed, ensure
from sweepstack.onbox.common.errors import No
from sweepstack.operations.sweep.target import Target


def smoke(target: Target, force: bool, out: Out) -> int:
    """Exit 0: it passed. `force`: also where it has passed before. Raises No where it fails, or nothing asks for it."""
    config = StackConfig.load(target.root, target.stack)
    own = own_files(target.root)
    shipment = collect(located(target.root, config.job.workdir), config.job.include, own)
    spec = configured_smoke(config, shipment.digest)
    if config.job.smoke is not None and config.job.smoke.on == "box":
        raise No(
            f"{config.file}: job.smoke runs on each box, before its first cell",
            [
                f"sweepctl logs --stack {target.stack} --of setup BOX    (its output there)",
                "write on: local into job.smoke to run it here",
            ],
        )
    if spec is None:
        raise No(
            f"{config.file} asks for no smoke run",
            [f'write job.smoke: {{run: "{config.job.run}"}} with an option that ends it after a step or two'],
        )
    with Progress("smoke run") as progress:
        try:
            outcome = ensure(spec, target.root, own=own, progress=progress.say, force=force)
        except SmokeFailed as error:
            raise No(str(error), [f"fix it, then sweepctl doctor --smoke --stack {target.stack}"]) from error
    passed = outcome.passed
    out.document(
        {
            "stack": target.stack,
            "passed": True,
            "ran": outcome.ran,
            "cell": spec.cell,
            "seconds": passed.seconds,
            "at": passed.at.isoformat(),
            "missing": list(passed.missing),
        }
    )
    when = "" if outcome.ran else f" on {passed.at:%Y-%m-%d %H:%M} UTC; --force runs it again"
    out.line(f"passed in {passed.seconds:.1f} s, as {spec.cell}{when}")
    if passed.missing:
        out.line(f"note   it left no {', '.join(passed.missing)}; a cell that does so fails", style="yellow")
    out.next([f"pulumi up --stack {target.stack}"])
    return YES
