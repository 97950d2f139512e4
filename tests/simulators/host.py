"""A host of the user's own for the tests: this machine again, entered through a real sshd on loopback, with a HOME and
an environment of its own. Needs openssh-server, and no root."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.addresses import port_for_a_program
from tests.simulators.machines import QUICK, SSHD

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
PYTHON = os.environ.get("SWEEPSTACK_HOST_PYTHON")
"""What `python3` is on hosts, for all of their tests: `SWEEPSTACK_HOST_PYTHON=/usr/bin/python3.8 pytest …`."""
_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
SFTP_SERVER = next((path for path in _SFTP if os.path.exists(path)), "internal-sftp")
"""A program, since ForceCommand starts it as one."""
_CONFIG = """\
Port {port}
ListenAddress {at}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
ForceCommand . {folder}/environment; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
Subsystem sftp {sftp}
{more}LogLevel VERBOSE
{quick}"""


class Host:
    """`port` stays the same over `stop` and `start`, unless it moves. `environment`: what sessions that begin from now
    on have besides. `at`: where it listens. `before`: words in front of the command that starts its sshd. `quick`:
    lines that spare a core; without them keys are exchanged as sshd does it by itself, in packets as large.

    `key`: a private key that is let in. `home`: the HOME of its sessions. `settings`: more lines of its configuration.
    """

    user = getpass.getuser()
    at = "127.0.0.1"
    before: tuple[str, ...] = ()
    quick = QUICK

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder, self.home, self.key = folder, folder / "home", folder / "id"
        self.home.mkdir(parents=True)
        for name in ("host_key", "id"):
            self._keygen(name)
        (folder / "authorized_keys").write_text((folder / "id.pub").read_text())
        self.environment: dict[str, str] = {}
        self.say()
        self._settings = settings
        self.move()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it separates privileges there, and insists on it
        self._sshd: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"{self.user}@{self.at}:{self.port}"

    def say(self, **environment: str) -> None:
        """Sets what new sessions have in their environment."""
        self.environment = environment
        words = {"HOME": str(self.home), **environment}
        if PYTHON:
            words["PATH"] = f"{self._with(PYTHON)}:{words.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
        lines = [f"export {name}='{value}'" for name, value in words.items()]
        (self.folder / "environment").write_text("unset XDG_DATA_HOME\n" + "\n".join(lines) + "\n")

    def _with(self, python: str) -> Path:
        """A folder in which this is python3."""
        folder = self.folder / "python"
        folder.mkdir(exist_ok=True)
        if not (folder / "python3").exists():
            (folder / "python3").symlink_to(python)
        return folder

    def move(self, port: int = 0) -> None:
        """Listens on another port, from its next start on; `port` says on which."""
        self.port = port or port_for_a_program()
        words = {"at": self.at, "port": self.port, "folder": self.folder, "sftp": SFTP_SERVER}
        words |= {"more": self._settings, "quick": self.quick}
        (self.folder / "sshd_config").write_text(_CONFIG.format(**words))

    def new_key(self) -> None:
        """Shows another host key from now on, as another machine behind the same address would."""
        self.stop()
        for path in (self.folder / "host_key", self.folder / "host_key.pub"):
            path.unlink()
        self._keygen("host_key")
        self.start()

    def _keygen(self, name: str) -> None:
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
        subprocess.run(command, check=True)

    def start(self) -> None:
        """Answers again, where it did not. Blocks until it does."""
        if self._sshd is not None and self._sshd.poll() is None:
            return
        sshd = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            self._sshd = subprocess.Popen(
                [*self.before, "setpriv", "--pdeathsig", "KILL", *sshd],  # it ends with the tests, however they end
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / "sshd.pid").write_text(str(self._sshd.pid))
        ends = time.monotonic() + START_SECONDS
        while socket.socket().connect_ex((self.at, self.port)) != 0:
            said = (self.folder / "sshd.log").read_text()
            assert self._sshd.poll() is None, said
            assert time.monotonic() < ends, said
            time.sleep(0.02)

    def stop(self) -> None:
        """Nobody answers any more: its sessions end, and what they left behind runs on. Idempotent."""
        if self._sshd is None:
            return
        for pid in [*sessions_of(self._sshd.pid), self._sshd.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._sshd.wait(START_SECONDS)
        self._sshd = None

    def cut(self) -> None:
        """Every connection that is open breaks, as when a network goes away; new ones are taken."""
        assert self._sshd is not None
        for pid in sessions_of(self._sshd.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def silence(self) -> None:
        """Connections are taken, and nothing comes on them, nor on those that are open. `stop` ends it."""
        assert self._sshd is not None
        for pid in [*sessions_of(self._sshd.pid), self._sshd.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def install_shutdown(self) -> Path:
        """A `shutdown` on the PATH of its sessions that writes down how it was called, and ends the sshd with all of
        its sessions, as the real one does. Returns the record: a line a call; nothing there before the first."""
        folder, record = self.folder / "bin", self.folder / "shutdowns"
        folder.mkdir(exist_ok=True)
        words = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.simulators.host import power_off; "
        call = shlex.join([sys.executable, "-c", f"{words}power_off({str(self.folder)!r})"])
        script = folder / "shutdown"
        script.write_text(f'#!/bin/sh\necho "shutdown $*" >> {shlex.quote(str(record))}\nexec {call}\n')
        script.chmod(0o755)
        path = self.environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")
        self.say(**{**self.environment, "PATH": f"{folder}:{path}"})
        self.cut()  # an agent that runs there already has the PATH of before
        return record

    @property
    def answers(self) -> bool:
        """Whether anybody listens at its address now."""
        with socket.socket() as probe:
            return probe.connect_ex((self.at, self.port)) == 0


def without_python(folder: Path) -> Path:
    """A folder for a host's PATH, with all that this machine's has but Python: as where an image puts its own into a
    login's PATH alone."""
    folder.mkdir()
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for tool in Path(place).iterdir():
            if not tool.name.startswith("python"):
                with contextlib.suppress(FileExistsError):
                    (folder / tool.name).symlink_to(tool)
    return folder


def power_off(folder: str) -> None:
    """What `shutdown` does on such a host: nobody answers there any more."""
    pid = int(Path(folder, "sshd.pid").read_text())
    for each in [*sessions_of(pid), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def sessions_of(sshd: int) -> list[int]:
    """The sshd processes below this one, each a session or a part of one."""
    parents: dict[int, tuple[int, bytes]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:
            continue
        name = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
        parents[int(entry.name)] = int(stat[stat.rindex(b")") + 2 :].split()[1]), name
    found = {sshd}
    while True:
        more = {pid for pid, (up, name) in parents.items() if up in found and name.startswith(b"sshd")}
        if more <= found:
            return sorted(found - {sshd})
        found |= more


def wrong_clock(folder: Path, seconds: float) -> Path:
    """A folder for a host's PATH whose python3 has another clock, and so has all that it starts by its own path."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    base = Path(sys.base_prefix) / "bin"
    (folder / "pyvenv.cfg").write_text(f"home = {base}\n")
    (folder / "bin" / "python3").write_text(_WITH_SITE.format(python=base / version))
    (folder / "bin" / "python3").chmod(0o755)
    (packages / "wrong.pth").write_text("import wrong_clock\n")
    (packages / "wrong_clock.py").write_text(_WRONG_CLOCK.format(seconds=seconds))
    return folder / "bin"


_WITH_SITE = """\
#!/bin/bash
for word; do shift; [ "$word" = -S ] || set -- "$@" "$word"; done
exec -a "$0" {python} "$@"
"""
"""The clock comes by a .pth file, which -S leaves aside."""
_WRONG_CLOCK = """\
import datetime, time
_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + int({seconds} * 1e9)
class datetime_there(_datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = datetime_there
"""
