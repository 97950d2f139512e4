"""What a machine needs before a runner starts on it, where nothing of ours is in its image: a real machine and sshd."""

from __future__ import annotations

import pytest
import yaml

from sweepstack.extensions.lambda_api import states as lambda_api
from tests.extensions.first_boot import add_user, machine, public_key, record, use
from tests.simulators.machines import Machine

__all__ = ["machine", "public_key"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_lambda_s_first_boot_or_our_first_look_makes_the_tiers(
    machine: Machine, public_key: str, cancelled: bool
) -> None:
    add_user(machine, "ubuntu")
    (machine.disk / "home/ubuntu/.ssh").mkdir()
    (machine.disk / "home/ubuntu/.ssh/authorized_keys").write_text(public_key)  # Lambda does that
    box = record(machine, "ubuntu")
    if cancelled:
        for argv in yaml.safe_load(lambda_api.FIRST_BOOT)["runcmd"]:
            done = machine.run(*argv)
            assert done.returncode == 0, done.stderr
    else:
        assert lambda_api.why_silent(box) == ""
    use(lambda_api.channel_to(box), machine)
