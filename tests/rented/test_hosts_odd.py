"""The loop on a host whose sessions bring what few do: it is entered through another one (ProxyJump), its HOME is not
there, and its umask is 077."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.rented.host_stack import HostStack
from tests.simulators.host import Host

ENTRY = "Host {name}\n  HostName {host.at}\n  User {host.user}\n  Port {host.port}\n  IdentityFile {host.key}\n"


@pytest.mark.proof  # tests/rented/test_hosts.py has the loop on a usual one
def test_the_loop_through_another_host_without_a_home_and_with_a_strict_umask(tmp_path: Path) -> None:
    gate, stack = Host(tmp_path / "gate"), HostStack(tmp_path / "sweep")
    try:
        ours = tmp_path / "ssh_config"
        lab = ENTRY.format(name="lab", host=stack.host) + "  ProxyJump gate\n"
        ours.write_text(lab + ENTRY.format(name="gate", host=gate))
        stack.env["SWEEPSTACK_SSH_CONFIG"] = str(ours)
        stack.host.say(**stack.host.environment, HOME="/nonexistent")
        with (stack.host.folder / "environment").open("a") as session:
            session.write("umask 077\n")
        stack.write_config()
        where = f"lab{stack.platform_root}"
        stack.edit_config(lambda sweep: sweep.update(boxes={"box-0": {"want": "running", "host": where}}))
        stack.init()
        ok(stack.up())
        stack.run_loop()
        gate.new_key()
        changed = stack.sweepctl("status")
        assert f"next   sweepctl confirm host --stack {stack.name} box-0 {gate.address}" in changed.text, changed.text
        shown = stack.sweepctl("confirm", "host", "box-0", gate.address, "--json").json()["shown"]
        ok(stack.sweepctl("confirm", "host", "box-0", gate.address, "--saw", shown[0].split()[-1]))
        ok(stack.destroy())
        assert (gate.folder / "sshd.log").read_text().count("Accepted publickey") > 0, "no session went through it"
    finally:
        stack.end()
        gate.stop()
