"""A Slurm cluster for the tests: the real munged, slurmctld and slurmd, each in a machine, and a login node.

Every part is a machine (`machines.py`) with its own processes, mounts, host name and root: the controller, the nodes,
and the login node, which is reached by SSH and has `sbatch`, `squeue`, `scancel`, `sinfo` and `scontrol` as on a real
cluster. All see one shared tier at /scratch and one home at /root; what lies in a node's /tmp is its own. There is no
accounting database, as on many clusters, so `sacct` says that it is disabled; `slurm_accounting.py` has a cluster with
one. The daemons speak over loopback, at ports that no other test has. A cluster is up in a second or two, and ends with
all jobs when it is stopped, and when the process that started it dies.

Its GPUs are files that do nothing; jobs get them counted and named (`CUDA_VISIBLE_DEVICES`) as real ones. Memory is
watched by polling (`OverMemoryKill`), because cgroups may be out of reach: what is over it ends as FAILED with exit
code 0:9, and with OUT_OF_MEMORY only where a test has the kernel watch it (`CGROUPS`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.addresses import port_for_a_program
from tests.simulators.gateway import add_address
from tests.simulators.machines import Machine, require

SHARED = "/scratch"
"""The shared tier, as every machine of the cluster sees it."""
OTHER_USER = "bob"
START_SECONDS = 60.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
_USERS = f"{OTHER_USER}:x:2001:2001::/home/{OTHER_USER}:/bin/bash\n"
_SETTINGS = {
    "ClusterName": "lab",
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "AuthType": "auth/munge",
    # a requeued job waits for as long as a credential lives
    "AuthInfo": "socket=/run/munge/socket,cred_expire=30",
    "StateSaveLocation": "/var/lib/slurm-state",
    "SlurmdSpoolDir": "/var/lib/slurmd",
    "SlurmctldPidFile": "/run/slurmctld.pid",
    "SlurmdPidFile": "/run/slurmd.pid",
    "SlurmctldLogFile": "/var/log/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurmd.log",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "SlurmdParameters": "config_overrides",  # nodes as large as the test wants, whatever this machine has
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "MpiDefault": "none",
    "MailProg": "/bin/true",
    "ReturnToService": "1",  # an answer that was under way does not bring a node back that the controller gave up
    "KillWait": "2",
    "MinJobAge": "300",
    "Epilog": "/etc/slurm/epilog.sh",
    "SlurmctldTimeout": "120",
    "SlurmdTimeout": "300",  # a busy machine must not lose a node; a test that wants it says so to the controller
    "TreeWidth": "100",
    "GresTypes": "gpu",
    "DefMemPerCPU": "200",
}
CGROUPS = {"TaskPlugin": "task/cgroup", "JobAcctGatherParams": "NoOverMemoryKill"}
"""Settings for a cluster whose kernel ends what takes too much memory: where `memory_cgroups()` says that it can."""
_EPILOG = f"#!/bin/sh\nwhile [ -e {SHARED}/hold-epilog ]; do sleep 0.1; done\n"
LIMITED = {"JobSubmitPlugins": "lua"}
"""Settings for a cluster that refuses jobs as one with accounting does; with `at_most` as its job_submit.lua."""
PARTITIONS = (
    "main Default=YES MaxTime=UNLIMITED PriorityTier=2",
    "short MaxTime=1 PriorityTier=2",
    "cheap MaxTime=UNLIMITED PriorityTier=1",
    "urgent MaxTime=UNLIMITED PriorityTier=10 PreemptMode=OFF",
)
"""Jobs of `urgent` preempt all others, which are requeued, and those of `main` and `short` preempt those of `cheap`."""


def missing() -> str:
    """What this host lacks for a cluster, with how to get it; empty when nothing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    if absent := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        return (
            f"Slurm of the tests needs {', '.join(absent)}: `scripts/setup --dev --slurm` (`make test` does it), or "
            f"`apt-get install -y --no-install-recommends munge slurmctld slurmd slurm-client`"
        )
    return ""


def at_most(jobs: int) -> str:
    """A job_submit.lua with a limit of submitted jobs a user, which counts each task of an array."""
    return f"""
function slurm_job_submit(job, partitions, uid)
  local count = 0
  for _, one in pairs(slurm.jobs) do
    if one.user_id == uid and one.job_state < 3 then count = count + 1 end
  end
  local asked = 1
  if job.array_inx then
    local first, last = string.match(job.array_inx, "^(%d+)-(%d+)")
    if first then asked = last - first + 1 end
  end
  if count + asked > {jobs} then return 2050 end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""


def memory_cgroups() -> bool:
    """Whether this host lets us limit the memory of processes."""
    return os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK)


class Part(Machine):
    """A machine whose first process keeps one daemon running, at ports of the host's loopback."""

    own_network: ClassVar[bool] = False
    daemon: str = ""

    def down(self, *, crash: bool = True) -> None:
        """Ends the daemon (as a crash does, or cleanly), and keeps it down. What it had started runs on."""
        self.run("touch", "/run/down")
        self.run("pkill", "-KILL" if crash else "-TERM", "-x", self.daemon)
        until(lambda: self.run("pgrep", "-x", self.daemon).returncode == 1, f"end of {self.daemon}")

    def up(self) -> None:
        """Lets the daemon start again. Returns at once."""
        self.run("rm", "-f", "/run/down")


class Login(Machine):
    """The login node: an ordinary machine of the tests that reaches the controller's port."""

    def _connect(self, port: int) -> None:
        super()._connect(port)
        add_address(self._network, "10.0.0.1")


class SlurmCluster:
    """A running cluster. `login`: where a user logs in by SSH; `nodes`: by name; `shared`: the host's folder of the
    shared tier. All waits are bounded. One thread's at a time."""

    seen: Mapping[str, Path] = {}
    """What all machines see besides: absolute path → folder of this host."""
    part: type[Part] = Part
    login_kind: type[Login] = Login

    def at(self, name: str) -> str:
        """The address of a machine, as the others know it."""
        return "127.0.0.1"

    def __init__(self, keep: Path, settings: Mapping[str, str], partitions: Sequence[str]) -> None:
        self.keep = keep
        self.shared = keep / "scratch"
        self.etc = keep / "etc"
        self.settings = {**_SETTINGS, **settings}
        self.partitions = tuple(partitions)
        self.port = port_for_a_program()
        self.outlets = [self.port]
        """Ports that the login node reaches."""
        self.hold = "true"
        """A command of the shell that returns once the controller may start."""
        self.nodes: dict[str, Part] = {}
        self.controller: Part
        self.login: Login

    @classmethod
    def start(
        cls,
        keep: Path,
        *,
        authorized_keys: Sequence[str] = (),
        nodes: int = 2,
        cpus: int = 8,
        memory_mb: int = 8000,
        gpus: int = 2,
        settings: Mapping[str, str] | None = None,
        partitions: Sequence[str] = PARTITIONS,
        files: Mapping[str, str] | None = None,
    ) -> SlurmCluster:
        """Starts one, and returns when all its nodes are idle and the login node's sshd answers (a second or two).

        `nodes` of `cpus`, `memory_mb` and `gpus` each, named n1, n2, …. `settings`: lines of slurm.conf that differ;
        `partitions`: what stands after `PartitionName=`, on all nodes where it names none; `files`: more files of
        /etc/slurm, by name.
        """
        require()
        if why := missing():
            import pytest

            pytest.fail(why, pytrace=False)
        made = cls(keep, settings or {}, partitions)
        try:
            made._start(authorized_keys, nodes, cpus, memory_mb, gpus, files or {})
        except BaseException:
            made.stop()
            raise
        return made

    def stop(self) -> None:
        """Ends all that runs in it at once. Idempotent."""
        for part in (getattr(self, "login", None), *self.nodes.values(), getattr(self, "controller", None)):
            if part is not None:
                part.kill()

    def __enter__(self) -> SlurmCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # -- asking

    def run(self, *argv: str, user: str = "root", seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
        """A command on the login node, past its sshd."""
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return self.login.run(*become, *argv, seconds=seconds)

    def ask(self, *argv: str, user: str = "root") -> str:
        """What a command on the login node prints. It must succeed."""
        done = self.run(*argv, user=user)
        assert done.returncode == 0, f"{shlex.join(argv)}: {done.stderr.decode()}"
        return done.stdout.decode().strip()

    def submit(self, script: str, *options: str, user: str = "root") -> str:
        """Submits a shell script from the shared tier. Its job's number."""
        return self.ask("sbatch", "--parsable", f"--chdir={SHARED}", *options, f"--wrap={script}", user=user)

    def jobs(self) -> list[tuple[str, str, str]]:
        """(number, or number_task; state; reason) of all jobs that the controller remembers, a task each."""
        lines = self.ask("squeue", "--all", "--array", "--noheader", "--states=all", "--format=%i|%T|%r").splitlines()
        return [tuple(line.split("|")) for line in lines]  # type: ignore[misc]

    def state(self, job: str) -> str:
        """The state of a job or of a task; "" where the controller does not remember it."""
        return next((state for number, state, _ in self.jobs() if number == job), "")

    def await_state(self, job: str, *states: str, seconds: float = START_SECONDS) -> str:
        """Waits until a job, or a task, is in one of these states."""
        until(lambda: self.state(job) in states, f"{job} {'/'.join(states)}", self.told, seconds)
        return self.state(job)

    def told(self) -> str:
        """What there is to say when something did not come: the queue, the nodes, the last lines of the daemons."""
        said = [self.run(*argv) for argv in (["squeue", "-a"], ["sinfo", "-N"])]
        last = [line.decode() for done in said for line in (done.stdout + done.stderr).splitlines()]
        for part in (self.controller, *self.nodes.values()):
            last.append(f"-- {part.name}")
            log = part.disk / f"var/log/{part.daemon}.log"
            last += log.read_text(errors="replace").splitlines()[-12:] if log.is_file() else []
        return "\n".join(last)

    # -- what happens to a cluster

    def restart_controller(self) -> None:
        """Waits until the next controller answers. Jobs run on meanwhile."""
        self.controller.down(crash=False)
        self.controller.up()
        self._await_controller()

    def remember(self) -> None:
        """Keeps what the controller knows now, for `forget`: it is ended for that, and started again."""
        self.controller.down(crash=False)
        shutil.copytree(self._state, self.keep / "remembered", dirs_exist_ok=True)
        self.controller.up()
        self._await_controller()

    def forget(self) -> None:
        """The controller crashes, and knows only what it knew when it was told to `remember`: a job that has begun
        since is pending again, and begins a second time under the same number, with the same count of restarts."""
        self.controller.down()
        shutil.rmtree(self._state)
        shutil.copytree(self.keep / "remembered", self._state)
        self.controller.up()
        self._await_controller()

    @property
    def _state(self) -> Path:
        return self.controller.disk / "var/lib/slurm-state"

    def drain(self, node: str) -> None:
        """An administrator takes a node out: what runs there may end, nothing new begins."""
        self.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=maintenance")

    def resume(self, node: str) -> None:
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")

    def lose(self, node: str) -> None:
        """A node's power fails, and the controller gives it up: its jobs end as NODE_FAIL, or are requeued."""
        self.nodes[node].stop()
        self.give_up(node)

    def give_up(self, node: str) -> None:
        """The controller takes a node for dead, whatever runs there still."""
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=gone")

    def bring_back(self, node: str) -> None:
        """The node boots, and its slurmd reports. Waits until it is usable."""
        self.nodes[node].restart()

        def usable() -> bool:
            self.run("scontrol", "update", f"nodename={node}", "state=resume")  # refused where reporting was enough
            return self._usable()

        until(usable, "usable nodes", self.told)

    def reboot_login(self) -> None:
        """All sessions and processes there end; its disk, address and host key stay."""
        self.login.restart()

    def read_only(self, read_only: bool = True) -> None:
        """No machine can write to the shared tier: opening a file for writing there, links and renames are refused.
        What a process has open already it can write, as it can with bytes that a network file system holds back."""
        way = "mount --bind {0} {0} && mount -o remount,bind,ro {0}" if read_only else "umount -l {0}"
        for machine in (self.login, *self.nodes.values()):
            if machine.alive:
                done = machine.run("sh", "-c", way.format(SHARED))
                assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def slow_ends(self) -> Iterator[None]:
        """Jobs that end meanwhile stay COMPLETING: the epilog of their node is not through."""
        hold = self.shared / "hold-epilog"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def shadow(self, program: str, script: str | None) -> None:
        """Puts a shell script in the place of a program of the login node; `$REAL` in it is the real one. None: takes
        it away. So an answer is lost, late or strange, and the real thing still happens. A program that is no command
        of Slurm is only put before the other one on PATH."""
        at, real, kept = f"/usr/local/bin/{program}", f"/usr/bin/{program}", f"/usr/local/lib/slurm-real/{program}"
        if script is None:
            self.login.run("sh", "-c", f"umount {real} 2>/dev/null; rm -f {at}")
            return
        make = f"cat > {at} && chmod 755 {at}"
        if program in _PROGRAMS:  # who has found it before knows its path, and would not look for it again
            keep = f"[ -e {kept} ] || install -D {real} {kept}"  # by its name: sbatch looks how it is called
            make += f" && {{ {keep}; }} && {{ grep -q ' {real} ' /proc/mounts || mount --bind {at} {real}; }}"
            real = kept
        text = f"#!/bin/sh\nREAL={real}\n{script}\n"
        done = self.login.run("sh", "-c", make, stdin=text.encode())
        assert done.returncode == 0, done.stderr

    # -- starting

    def _start(
        self,
        authorized_keys: Sequence[str],
        nodes: int,
        cpus: int,
        memory_mb: int,
        gpus: int,
        files: Mapping[str, str],
    ) -> None:
        munge, home = self.keep / "munge", self.keep / "login/disk/root"
        for folder in (self.etc, munge, self.shared, home):
            folder.mkdir(parents=True)
        self.shared.chmod(0o1777)
        (munge / "key").write_bytes(os.urandom(64))
        (munge / "key").chmod(0o400)
        names = [f"n{number}" for number in range(1, nodes + 1)]
        for name, text in {**self._config(names, cpus, memory_mb, gpus), "epilog.sh": _EPILOG, **files}.items():
            (self.etc / name).write_text(text)
        (self.etc / "epilog.sh").chmod(0o755)
        binds = {"/etc/slurm": self.etc, "/run/munge": munge, SHARED: self.shared, **self.seen}

        def machine(kind: type[Machine], name: str, command: str | None, **more: object) -> Machine:
            keep = self.keep / name
            self._etc(keep / "disk/etc", names)
            argv = None if command is None else ["/bin/sh", "-c", command]
            return kind.start(name, keep=keep, command=argv, **{"binds": binds, **more})  # type: ignore[arg-type]

        def part(name: str, daemon: str, first: str, command: str, **more: object) -> Part:
            loop = f"exec </dev/null; {first}; while :; do [ -e /run/down ] || {command}; sleep 0.05; done"
            made = machine(self.part if name in names else Part, name, loop, **more)
            assert isinstance(made, Part)
            made.daemon = daemon
            return made

        munged = (
            "/usr/sbin/munged --force --num-threads=2 --key-file=/run/munge/key --socket=/run/munge/socket "
            "--pid-file=/run/munged.pid --seed-file=/run/munge/seed --log-file=/run/munge/log"
        )
        state = "mkdir -p /var/lib/slurm-state /var/lib/slurmd"
        self.controller = part("ctl", "slurmctld", f"{state}; {munged}; {self.hold}", "/usr/sbin/slurmctld -D")
        self._start_more(part)
        devices = "".join(f"touch /dev/nvidia{n}; mount --bind /dev/null /dev/nvidia{n}; " for n in range(gpus))
        for name in names:
            self.nodes[name] = part(
                name,
                "slurmd",
                f"{devices}{state}",
                f"/usr/sbin/slurmd -D -N {name}",
                binds={**binds, "/root": home},
                gpus=gpus,
            )
        login = machine(self.login_kind, "login", None, authorized_keys=authorized_keys, outlets=self.outlets)
        assert isinstance(login, Login)
        self.login = login
        self._await_nodes()

    def _start_more(self, part: Callable[..., Part]) -> None:
        """Starts what a cluster has besides, after the controller and before the nodes, by `part(name, daemon, first,
        command)`."""

    def _etc(self, etc: Path, nodes: Sequence[str]) -> None:
        """The files of /etc that differ from the host's: one more user, and names of the machines."""
        etc.mkdir(parents=True)
        (etc / "passwd").write_text(Path("/etc/passwd").read_text() + _USERS)
        (etc / "group").write_text(Path("/etc/group").read_text() + f"{OTHER_USER}:x:2001:\n")
        known = [f"{self.at(name)} {name}" for name in ("ctl", "login", *nodes)]
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known, ""]))

    def _config(self, nodes: Sequence[str], cpus: int, memory_mb: int, gpus: int) -> dict[str, str]:
        lines = [f"{key}={value}" for key, value in self.settings.items()]
        lines += [f"SlurmctldHost=ctl({self.at('ctl')})", f"SlurmctldPort={self.port}"]
        gres = f" Gres=gpu:{gpus}" if gpus else ""
        taken = {self.port}
        for name in nodes:
            while (port := port_for_a_program()) in taken:
                pass
            taken.add(port)
            size = f"CPUs={cpus} RealMemory={memory_mb}{gres}"
            lines.append(f"NodeName={name} NodeAddr={self.at(name)} Port={port} {size} State=UNKNOWN")
        lines += [f"PartitionName={one}{'' if 'Nodes=' in one else ' Nodes=ALL'} State=UP" for one in self.partitions]
        cards = f"NodeName={','.join(nodes)} Name=gpu File=/dev/nvidia[0-{gpus - 1}]\n" if gpus else ""
        return {
            "slurm.conf": "\n".join(lines) + "\n",
            "gres.conf": cards,
            "cgroup.conf": "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n",
        }

    def _await_controller(self) -> None:
        until(lambda: self.run("scontrol", "ping").stdout.strip().endswith(b"UP"), "a controller", self.told)

    def _await_nodes(self) -> None:
        until(self._usable, "usable nodes", self.told)

    def _usable(self) -> bool:
        said = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").stdout.split(b"\n")
        usable = {line.split()[0] for line in said if line and line.split()[1] in (b"idle", b"mixed", b"allocated")}
        return len(usable) == len(self.nodes)


def until(
    what: Callable[[], bool],
    said: str = "what was waited for",
    told: Callable[[], str] = str,
    seconds: float = START_SECONDS,
) -> None:
    """Waits until it is so."""
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, f"no {said} after {seconds:.0f} s\n{told()}"
        time.sleep(0.05)
