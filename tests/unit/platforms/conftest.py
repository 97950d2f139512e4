"""What the tests of hosts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.channel.ssh import route as ssh_config
from tests.simulators.host import Host
from tests.simulators.machines import require


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host that lets this computer in, which knows it from no file of the person's own: its ssh configuration is
    `tmp_path / "ssh_config"`, and says nothing yet."""
    require()
    found = Host(tmp_path / "host")
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(found.key))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, str(tmp_path / "ssh_config"))
    (tmp_path / "ssh_config").write_text("")
    yield found
    found.stop()
