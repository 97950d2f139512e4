"""A rented box for the tests: a real process tree with a real sshd, which knows nothing of the machine it runs on.

A machine has its own processes, mounts, host name, loopback network and root. Of the host it sees /usr (below a layer
of its own, so that it can install things) and the folders that are bound into it, and nothing else: not this checkout,
not /tmp, not its interpreter. Its *disk* (/root, /sweepstack, /workspace, /etc, /home, /tmp, /var, /srv) lies in a
folder of the host and outlives a stop until it is wiped; what is bound into it is its owner's. It is reached at a port
of 127.0.0.1, as through a platform's port mapping, which is also where connections are cut or fall silent (`gateway`).

Needs root (namespaces) and openssh-server: `require()` fails a test with what to install. A machine ends with all that
runs in it when it is stopped, and when the process that started it dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar

from tests.simulators.gateway import Gateway, Outlet, Relay, network_of, raise_loopback, socket_in

INIT = Path(__file__).with_name("machine_init.sh")
SSHD = Path("/usr/sbin/sshd")
START_SECONDS = 120.0
USER_ID = 61_000
"""Of a user that is not root, and of its group; none that this host has."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DURABLE = "/sweepstack/mnt/durable"
_DISK = {"root": 0o700, "home": 0o755, "sweepstack": 0o755, "workspace": 0o755, "srv": 0o755, "tmp": 0o1777}
_FROM_ETC = """
    alternatives bash.bashrc debian_version default environment group gshadow host.conf hosts ld.so.cache ld.so.conf
    ld.so.conf.d localtime login.defs mke2fs.conf nsswitch.conf os-release pam.conf pam.d passwd profile profile.d
    protocols python3 python3.11 resolv.conf security services shadow shells ssl timezone
"""
_WARDEN = """
setpriv --pdeathsig KILL unshare -m -p -u -i -f --kill-child "$@" <&- 4<&- &
machine=$!
exec 3>&-
echo "$machine" >&5
exec 5>&-
read -r _ <&4
kill -KILL "$machine" 2>/dev/null
wait "$machine"
"""
"""Stands between the test and the machine, and ends it when descriptor 4 closes: told to, or because the test died."""

SSHD_CONFIG = """\
Port 22
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
ClientAliveInterval 15
ClientAliveCountMax 3
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""
QUICK = "KexAlgorithms curve25519-sha256\n"
"""For each sshd of the tests: what ssh prefers (sntrup761) takes a twelfth of a second of a core at each connection."""


@functools.cache
def _rsa_key() -> dict[str, bytes]:
    """A host key of RSA, by file name: it takes half a second of a core, and clients prefer the one of ed25519."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ssh_host_rsa_key")
        subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-C", "box", "-f", str(path)], check=True)
        return {name: Path(folder, name).read_bytes() for name in (path.name, f"{path.name}.pub")}


def missing() -> str:
    """What this host lacks for machines, with how to get it; empty when nothing."""
    if os.geteuid() != 0:
        return (
            "machines of the tests need root (namespaces and mounts): run the tests as root, or in a container that may"
        )
    programs = [name for name in ("unshare", "setpriv", "ssh", "ssh-keygen", "rsync") if shutil.which(name) is None]
    if not SSHD.is_file():
        programs.append(str(SSHD))
    if programs:
        return (
            f"machines of the tests need {', '.join(programs)}: `scripts/setup --dev --ssh` (`make test` does it), or "
            f"`apt-get install -y --no-install-recommends openssh-client openssh-server rsync util-linux`"
        )
    return ""


def require() -> None:
    """Fails the test with what to install. Nothing that needs a machine is ever skipped."""
    import pytest

    if why := missing():
        pytest.fail(why, pytrace=False)


class Machine:
    """One machine. `host` and `port` say where its sshd answers now; `host_key` is its public host key (type, base64).

    `gateway`, `outlets`: the ways to it and from it, where the network is cut. `disk`: its disk as a folder of the
    host; `log`: what its first process printed. Several threads may use one; starts and stops of one machine are one
    thread's at a time.
    """

    image_binds: ClassVar[dict[str, Path]] = {}
    """What every machine shows besides, as an image's content: absolute path in the machine → folder of the host."""
    image_tools: ClassVar[dict[str, str]] = {}
    """Programs that every machine has besides, as name → script."""
    own_network: ClassVar[bool] = True
    """Else it shares the host's, has no gateway and no outlets, and nothing is waited for at port 22."""

    def __init__(
        self,
        name: str,
        keep: Path,
        *,
        authorized_keys: Sequence[str],
        env: Mapping[str, str],
        binds: Mapping[str, Path],
        command: Sequence[str] | None,
        session_env: bool,
        gpus: int,
        tools: Mapping[str, str],
        shell_only: bool,
        outlets: Sequence[int],
        login: str,
        address: str,
    ) -> None:
        self.name, self.keep = name, keep
        self.user, self.host = login, address or "127.0.0.1"
        self.disk, self.log = keep / "disk", keep / "log"
        self.authorized_keys = list(authorized_keys)
        self.env, self.binds = dict(env), dict(binds)
        self.command, self.session_env, self.shell_only = command, session_env, shell_only
        self.gpus, self.tools = gpus, dict(tools)
        self.port = 22 if address else 0
        self.gateway: Gateway | None = None
        self.outlets: list[Outlet] = []
        self._outward = tuple(outlets)
        self._isolated = False
        self._warden: subprocess.Popen[bytes] | None = None
        self._leash: IO[bytes] | None = None
        self._network = -1
        self.pid = 0
        """Of `unshare`, on the host: its only child is the machine's first process."""

    @classmethod
    def start(
        cls,
        name: str,
        *,
        keep: Path,
        authorized_keys: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        durable: Path | None = None,
        binds: Mapping[str, Path] | None = None,
        command: Sequence[str] | None = None,
        session_env: bool = False,
        gpus: int = 0,
        tools: Mapping[str, str] | None = None,
        shell_only: bool = False,
        outlets: Sequence[int] = (),
        login: str = "root",
        address: str = "",
    ) -> Machine:
        """Starts a machine and returns when its port 22 answers (at most 30 s; usually in 0.2 s).

        `keep`: a folder of its own, where its disk lies. `env`: the environment of its first process, as of a
        container; with `session_env` (sshd started by us) every SSH session has it, too. `durable`: a folder of the
        host to show at /sweepstack/mnt/durable; `binds`: more of the kind, by absolute path in the machine.

        `command`: what it runs instead of our sshd, and has to start one on port 22 by itself (a platform's start
        command, with `env` as it gets it there); the machine ends when the command does. `authorized_keys`: public
        keys that may log in as root; our sshd only. `gpus`: what `nvidia-smi` says; without any there is no such
        program. `tools`: more programs for /usr/local/bin, as name → script. `shell_only`: sessions get a terminal or
        nothing, as through a proxy that can neither copy nor forward. `outlets`: ports of the host's loopback that it
        reaches at the same port of its own; it reaches nothing else. `login`: the only user that may log in; our sshd
        only. `address`: one of loopback at whose port 22 it answers, as a machine with a public address does; else it
        is at a port of 127.0.0.1.
        """
        require()
        found = {**cls.image_binds, **(binds or {})}
        if durable is not None:
            found[DURABLE] = durable
        machine = cls(
            name,
            keep,
            authorized_keys=authorized_keys,
            env=env or {},
            binds=found,
            command=command,
            session_env=session_env,
            gpus=gpus,
            tools={**cls.image_tools, **(tools or {})},
            shell_only=shell_only,
            outlets=outlets,
            login=login,
            address=address,
        )
        machine._boot(port=machine.port)
        return machine

    @property
    def alive(self) -> bool:
        return self._warden is not None and _namespace(self.pid) is not None

    @property
    def host_key(self) -> str:
        """Empty where the command has made none yet."""
        try:
            return " ".join((self.disk / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2])
        except OSError:
            return ""

    def stop(self) -> None:
        """Ends everything in it at once, as a power cut would: also what ran in sessions of its own. Its disk stays.
        Idempotent."""
        for way in self._ways():
            way.close()
        if self._warden is not None:
            with contextlib.suppress(OSError, IndexError):  # its first process: the kernel ends all others with it
                os.kill(_child(self.pid), signal.SIGKILL)
                _await_end(self.pid)
        if self._leash is not None:
            self._leash.close()
        if self._warden is not None:
            self._warden.wait(START_SECONDS)
        if self._network >= 0:
            os.close(self._network)
        self._warden, self._leash, self._network = None, None, -1

    def wipe(self) -> None:
        """Empties its disk, which must not run; a new host key comes with the next start. What is bound stays."""
        assert not self.alive, f"{self.name} runs: stop it first"
        shutil.rmtree(self.disk, ignore_errors=False)

    def restart(self, *, new_port: bool = False, env: Mapping[str, str] | None = None, gpus: int | None = None) -> None:
        """Starts it again on its disk (stops it first where it runs), at its port or at a new one."""
        self.stop()
        self.env = dict(env) if env is not None else self.env
        self.gpus = self.gpus if gpus is None else gpus
        self._boot(port=0 if new_port else self.port)

    def kill(self) -> None:
        """Ends it for good: processes and disk. What is bound into it stays. Idempotent."""
        self.stop()
        shutil.rmtree(self.disk, ignore_errors=True)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def isolate(self, isolated: bool = True) -> None:
        """From now on nothing passes to it or from it, and nothing is refused, as when its network is gone; also after
        a restart. With False, new connections are taken again."""
        self._isolated = isolated
        for way in self._ways():
            if not isolated:
                way.cut()
            way.silence(isolated)

    def _ways(self) -> list[Relay]:
        return [way for way in (self.gateway, *self.outlets) if way is not None]

    def pids(self) -> list[int]:
        """All that runs in it, by the host's pids."""
        mine = _namespace(_child(self.pid)) if self.alive else None
        names = (int(name) for name in os.listdir("/proc") if name.isdigit())
        return [pid for pid in names if mine is not None and _namespace(pid) == mine]

    def run(self, *argv: str, stdin: bytes | None = None, seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
        """Runs something in it from outside, past its sshd, as a console would."""
        enter = ["nsenter", "-t", str(_child(self.pid)), "-m", "-p", "-u", "-i", "-n", "-r", "-w", "--"]
        return subprocess.run(
            [*enter, *argv],
            input=stdin,
            env={"PATH": SYSTEM_PATH, "HOME": "/root"},
            capture_output=True,
            timeout=seconds,
        )

    def drop_sessions(self) -> None:
        """Kills every sshd that serves a connection, not the one that listens, nor what they started."""
        listener = self.run("cat", "/run/sshd.pid").stdout.strip()
        for line in self.run("ps", "-eo", "pid=,comm=").stdout.splitlines():
            pid, program = line.split(None, 1)
            if program.startswith(b"sshd") and pid not in (listener, b"1"):
                self.run("kill", "-KILL", pid.decode())

    # -- starting

    def _boot(self, port: int) -> None:
        self._furnish()
        root, tools = self.keep / "machine", self.keep / "tools"
        binds, command = self.keep / "binds", self.keep / "command"
        shutil.rmtree(tools, ignore_errors=True)
        for folder in (root, tools):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**self.tools, **({"nvidia-smi": NVIDIA_SMI} if self.gpus else {})}.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        binds.write_text("".join(f"{host}\t{inside}\n" for inside, host in sorted(self.binds.items())))
        main = shlex.join(self.command or [str(SSHD), "-D", "-e", "-f", "/etc/ssh/sshd_config"])
        command.write_text(f"{main}\nexit $?\n")  # the shell stays the first process: it shows `env`, and reaps
        held, leash = os.pipe()
        up, say_up = os.pipe()
        told, say_pid = os.pipe()
        theirs = [_out_of_the_way(descriptor) for descriptor in (say_up, held, say_pid)]
        env = {"PATH": SYSTEM_PATH, "HOME": "/root", **self.env}
        env |= {"MACHINE_BINDS": str(binds), "MACHINE_COMMAND": str(command), "MACHINE_TOOLS": str(tools)}
        placing = "exec 3>&{} 4<&{} 5>&{}\n".format(*theirs) + "exec " + " ".join(f"{one}>&-" for one in theirs) + "\n"
        with self.log.open("ab") as log:
            self._warden = subprocess.Popen(
                [
                    "/bin/bash",
                    "-c",
                    placing + _WARDEN,
                    "warden",
                    *(["-n"] if self.own_network else []),
                    "/bin/sh",
                    str(INIT),
                    str(root),
                    str(self.disk),
                    self.name,
                ],
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=theirs,
                start_new_session=True,
            )
        for ours in theirs:
            os.close(ours)
        self._leash = os.fdopen(leash, "wb", buffering=0)
        try:
            self.pid = int(self._line(told))
            if self._line(up) != b"up":
                raise AssertionError(f"machine {self.name} did not start: {self._said()}")
            if self.own_network:
                self._connect(port)
        except BaseException:
            self.stop()
            raise

    def _connect(self, port: int) -> None:
        try:
            self._network = network_of(self.pid)
        except FileNotFoundError:  # what it runs has ended already
            raise AssertionError(self._no_sshd()) from None
        raise_loopback(self._network)
        self.outlets = [Outlet(self._network, port) for port in self._outward]
        self._await_ssh()
        self.gateway = Gateway(self._network, 22, port=port, at=self.host)
        self.port = self.gateway.port
        if self._isolated:
            self.isolate()

    def _furnish(self) -> None:
        """Makes what is not on the disk yet. What is, stays."""
        for folder, mode in _DISK.items():
            (self.disk / folder).mkdir(parents=True, exist_ok=True)
            (self.disk / folder).chmod(mode)
        for folder in ("var/tmp", "var/log", "var/run", "var/cache", "var/lib", "root/.ssh", "etc/ssh"):
            (self.disk / folder).mkdir(parents=True, exist_ok=True)
        for name in _FROM_ETC.split():
            source, target = Path("/etc") / name, self.disk / "etc" / name
            if os.path.lexists(source) and not os.path.lexists(target):
                subprocess.run(["cp", "-a", str(source), str(target)], check=True)
        for name in ("lastlog", "wtmp", "btmp"):
            (self.disk / "var/log" / name).touch()
        (self.disk / "etc/hostname").write_text(f"{self.name}\n")
        for name, source in (("sshd_config", "/usr/share/openssh/sshd_config"), ("moduli", "/etc/ssh/moduli")):
            if Path(source).is_file() and not (self.disk / "etc/ssh" / name).exists():
                more = QUICK if name == "sshd_config" else ""
                (self.disk / "etc/ssh" / name).write_text(f"{more}{Path(source).read_text()}")
        (self.disk / "etc/machine-gpus").write_text("".join(f"{n}\n" for n in range(self.gpus)))
        if self.command is not None:
            for (
                name,
                content,
            ) in _rsa_key().items():  # what a start command asks for by `ssh-keygen -A` is there already
                if not (self.disk / "etc/ssh" / name).exists():
                    (self.disk / "etc/ssh" / name).write_bytes(content)
                    (self.disk / "etc/ssh" / name).chmod(0o600)
            return
        key = self.disk / "etc/ssh/ssh_host_ed25519_key"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key)], check=True)
        config = SSHD_CONFIG + QUICK
        if self.session_env and self.env:
            config += "SetEnv " + " ".join(f'"{name}={value}"' for name, value in sorted(self.env.items())) + "\n"
        (self.disk / "etc/ssh/sshd_config").write_text(config)
        self._write_keys()

    def _write_keys(self) -> None:
        limits = ""
        if self.shell_only:
            refusal = 'echo "Error: Your SSH client doesn\'t support PTY"; exit 1'
            shell = f'if [ -z "$SSH_TTY" ]; then {refusal}; fi; exec ${{SHELL:-/bin/bash}} -l'
            limits = 'restrict,pty,command="{}" '.format(shell.replace('"', '\\"'))
        path = (self.disk / "root" if self.user == "root" else self._home()) / ".ssh/authorized_keys"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text("".join(f"{limits}{key.strip()}\n" for key in self.authorized_keys))
        path.chmod(0o600)
        if self.user != "root":
            for made in (path.parent, path):
                os.chown(made, USER_ID, USER_ID)

    def _home(self) -> Path:
        """The home of a user that is not root, who is made where there is none yet."""
        home = self.disk / "home" / self.user
        if not home.exists():
            home.mkdir(mode=0o750)
            os.chown(home, USER_ID, USER_ID)
            for name, line in (
                ("passwd", f"{self.user}:x:{USER_ID}:{USER_ID}::/home/{self.user}:/bin/bash"),
                ("group", f"{self.user}:x:{USER_ID}:"),
                ("shadow", f"{self.user}:*:19700:0:99999:7:::"),
            ):
                with (self.disk / "etc" / name).open("a") as table:
                    table.write(f"{line}\n")
        return home

    def authorize(self, *keys: str) -> None:
        """Lets more public keys log in from now on, as a platform does that attaches a key to what runs."""
        self.authorized_keys += keys
        self._write_keys()

    def _await_ssh(self) -> None:
        ends = time.monotonic() + START_SECONDS
        while True:
            with socket_in(self._network) as probe:
                if probe.connect_ex(("127.0.0.1", 22)) == 0:
                    return
            if not self.alive or time.monotonic() > ends:
                raise AssertionError(self._no_sshd())
            time.sleep(0.02)

    def _no_sshd(self) -> str:
        return f"machine {self.name} has no sshd at port 22: {self._said()}"

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def _line(self, descriptor: int) -> bytes:
        """One line that the warden or the machine says. Both end it by ending themselves."""
        with os.fdopen(descriptor, "rb", buffering=0) as handle:
            ready, _, _ = select.select([handle], [], [], START_SECONDS)
            line = handle.readline().strip() if ready else b""
        if not line:
            raise AssertionError(f"machine {self.name} did not start: {self._said()}")
        return line


NVIDIA_SMI = """\
#!/bin/sh
# The driver's tool of a machine that has no GPU and says that it has: one line for each line of /etc/machine-gpus.
case "$*" in
  -L) while read -r n; do echo "GPU $n: NVIDIA A100-SXM4-40GB (UUID: GPU-0000000$n)"; done < /etc/machine-gpus ;;
  *--query-gpu=*)
    fields=$(echo "$*" | sed 's/.*--query-gpu=//; s/ .*//' | tr , ' ')
    while read -r n; do
      line=
      for field in $fields; do
        case $field in
          index) value=$n ;; name|gpu_name) value="NVIDIA A100-SXM4-40GB" ;; uuid|gpu_uuid) value="GPU-0000000$n" ;;
          memory.total) value=40960 ;; memory.used) value=0 ;; memory.free) value=40960 ;; utilization.gpu) value=0 ;;
          driver_version) value=570.86.15 ;; temperature.gpu) value=40 ;; count) value=$(wc -l < /etc/machine-gpus) ;;
          *) value="[N/A]" ;;
        esac
        line="$line${line:+, }$value"
      done
      echo "$line"
    done < /etc/machine-gpus ;;
  *--query-compute-apps=*) ;;
  *) echo "NVIDIA-SMI 570.86.15    Driver Version: 570.86.15    CUDA Version: 12.8" ;;
esac
"""


def _out_of_the_way(descriptor: int) -> int:
    """The same, with a number that the warden does not use for something else."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return moved


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _await_end(pid: int) -> None:
    """Waits for `unshare`, which ends when nothing of the machine is left."""
    ends = time.monotonic() + START_SECONDS
    while _namespace(pid) is not None and time.monotonic() < ends:
        time.sleep(0.005)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None
