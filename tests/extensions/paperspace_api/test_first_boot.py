"""What a machine needs before a runner starts on it, where nothing of ours is in its image: a real machine and sshd."""

from __future__ import annotations

from sweepstack.extensions.paperspace_api import states as paperspace_api
from sweepstack.extensions.paperspace_api.api import login_script
from tests.extensions.first_boot import add_user, machine, public_key, record, use
from tests.simulators.machines import Machine

__all__ = ["machine", "public_key"]


def test_paperspace_s_startup_script_lets_the_key_in_and_makes_the_tiers(machine: Machine, public_key: str) -> None:
    """Nothing else makes them: a create that was cancelled did not."""
    add_user(machine, "paperspace")
    box = record(machine, "paperspace")
    assert "Permission denied" in paperspace_api.why_silent(box)
    for _ in range(2):  # at each boot
        done = machine.run("sh", "-c", login_script(public_key)[1])
        assert done.returncode == 0, done.stderr
    use(paperspace_api.channel_to(box), machine)
    assert paperspace_api.why_silent(box) == ""
