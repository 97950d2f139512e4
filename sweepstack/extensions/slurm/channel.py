"""The way to a box on a cluster: a folder that the login node reads, and workers that Slurm starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweepstack.channel.agent_source import files
from sweepstack.channel.prefetch import Answers
from sweepstack.channel.ssh.channel import SshChannel
from sweepstack.extensions.slurm.api import SHIPPED
from sweepstack.launch.ship import bring_program
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.ssh.api import Caller


class ClusterChannel(SshChannel):
    """See `sweepstack.onbox.agent.channel.Channel` and `Scheduled`."""

    def __init__(
        self,
        caller: Caller,
        native_id: str,
        account: str,
        root: str,
        mounts: Mapping[str, str],
        closed: Callable[[], str],
        answers: Answers | None = None,
    ) -> None:
        super().__init__(
            native_id,
            caller.way.endpoint,
            root=root,
            mounts=mounts,
            closed=closed,
            links=caller.connections(),
            answers=answers,
        )
        self._caller, self._account = caller, account

    def state_command(self) -> list[str]:
        return [self.python, self._program("worker_state"), self.native_id, self.absolute(box_layout.HOME)]

    def top_up(self, runner: str, scheduler: Mapping[str, Any], cells: int) -> str:
        return str(
            self._ask_of_box(
                "top_up",
                scheduler=dict(scheduler),
                cells=cells,
                python=self.python,
                pilot=self._program("pilot"),
                runner=runner,
            )
        )

    def end_workers(self) -> None:
        self._ask_of_box("end_workers")

    def workers(self) -> Mapping[str, Any]:
        said = self._ask_of_box("workers")
        if not isinstance(said, dict) or not isinstance(said.get("tasks"), list):
            raise Unreachable(f"{self._caller.address} does not answer as agreed")
        return said

    def _ask_of_box(self, verb: str, **args: Any) -> Any:
        return self._caller.ask(verb, native_id=self.native_id, account=self._account, **args)

    def _program(self, name: str) -> str:
        """The path of a program that nodes run, which is brought to the shared tier."""
        return self.absolute(f"{box_layout.HOME}/{bring_program(self, 'pilot', _files())}/{name}.py")


def _files() -> list[tuple[str, Path, int]]:
    own = Path(__file__).parent / "onbox"
    programs = [("pilot.py", own / "start.py", 0o644), ("worker_state.py", own / "state_program.py", 0o644)]
    return [*programs, *files(*SHIPPED)]
