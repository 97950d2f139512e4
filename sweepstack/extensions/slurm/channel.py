"""The way to a box on a cluster: a folder that the login node reads, and workers that Slurm starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.channel.agent_source import files
from sweepstack.channel.prefetch import Answers
from sweepstack.channel.ssh.channel import SshChannel
from sweepstack.extensions.slurm.api import SHIPPED
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import sha256_hex
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
        folder = self._ship()
        return [self.python, self.absolute(f"{folder}/worker_state.py"), self.native_id, self.absolute(box_layout.HOME)]

    def top_up(self, runner: str, scheduler: Mapping[str, Any], cells: int) -> str:
        return str(
            self._ask_of_box(
                "top_up",
                scheduler=dict(scheduler),
                cells=cells,
                python=self.python,
                pilot=self.absolute(f"{self._ship()}/pilot.py"),
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

    def _ship(self) -> str:
        """Puts what the nodes run on the shared tier; a folder a version. Returns its path on the box."""
        files = _files()
        version = sha256_hex(b"".join(source.read_bytes() for _, source, _ in files))[:12]
        folder = f"{box_layout.HOME}/pilot-{version}"
        self.put_tree(files, folder)
        return folder


def _files() -> Sequence[tuple[str, Path, int]]:
    own = Path(__file__).parent / "onbox"
    programs = [("pilot.py", own / "start.py", 0o644), ("worker_state.py", own / "state_program.py", 0o644)]
    return [*programs, *files(*SHIPPED)]
