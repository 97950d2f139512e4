"""A sweep of one box and two cells, to be asked again and again: what holds of it, and what names it where it bills."""

from __future__ import annotations

import textwrap

from tests.engine.commands import Result, assert_refused
from tests.engine.harness import Stack

TRANSFORM = """\
import pulumi
from pulumi import Alias, CustomTimeouts
from pulumi import ResourceOptions as Options


def change(asked):
    kind = asked.type_.rpartition(":")[2] if asked.type_.startswith("sweepstack:index:") else ""
    if kind not in {kinds!r}.split():
        return None
    props, opts = dict(asked.props), asked.opts
{lines}
    return pulumi.ResourceTransformResult(props, opts)


pulumi.runtime.register_resource_transform(change)

"""


JOB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_EVENT_NAME": "schedule",
    "GITHUB_REPOSITORY": "lab/sweeps",
    "GITHUB_SERVER_URL": "https://github.example",
    "GITHUB_RUN_ID": "1",
    "GITHUB_SHA": "0" * 40,
}


class Row:
    """The sweep, what it looked like before, and its program with options."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.before = stack, stack.snapshot()
        self._program = (stack.checkout / "__main__.py").read_text()
        (self.native_id,) = stack.native_ids()

    def program(self, lines: str, kinds: str = "Box") -> None:
        """Options of all resources of these kinds, from the next command on."""
        head = TRANSFORM.format(kinds=kinds, lines=textwrap.indent(textwrap.dedent(lines).strip(), "    "))
        place = "from __future__ import annotations\n"
        (self.stack.checkout / "__main__.py").write_text(self._program.replace(place, place + head))

    def plain(self) -> None:
        """The program as it was."""
        (self.stack.checkout / "__main__.py").write_text(self._program)

    def holds(self, result: Result, *, state: bool = False) -> None:
        """Refused with the cell that is training; nothing of the box changed, and the state has it."""
        assert_refused(result, ["seed1"])
        self.unchanged(result, state=state)

    def unchanged(self, result: Result, *, state: bool = False) -> None:
        self.stack.assert_unchanged(self.before, result, state=state)
        assert [one["id"] for one in self.stack.resources("Box")] == [self.native_id], str(result)

    def names_what_bills(self) -> None:
        """`status`, `audit` and the night's job name the box that no state has, and none says that all is well."""
        for words in (("status", "--stack", "t"), ("audit",)):
            said = self.stack.run("sweepctl", *words)
            assert said.rc != 0, str(said)
            assert self.native_id in said.text, str(said)
        night = self.stack.base / "night"
        event = self.stack.base / "event.json"
        event.write_text("{}")
        said = self.stack.run("sweepctl", "ci", "nightly", str(night), env=JOB | {"GITHUB_EVENT_PATH": str(event)})
        (issue,) = (path.read_text() for path in night.iterdir())
        assert self.native_id in issue, f"{issue}\n{said}"
