"""A Slurm cluster with accounting: the real slurmdbd, and a MariaDB of its own for it, in one more machine.

What `sacct` and `sacctmgr` say there is what they say on a cluster of a site. The database begins empty, holds nothing
that outlives the cluster, and asks for no password: only slurmdbd reaches its socket. Such a cluster takes some seconds
more to start.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.addresses import port_for_a_program
from tests.simulators import slurm_cluster
from tests.simulators.slurm_cluster import Part, SlurmCluster, until

ACCOUNT = "physics"
"""All users of the cluster have this account, and no limit but those that a test sets (`sacctmgr`)."""
ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos"}
"""Settings for a cluster that keeps to the limits of accounts and QOS."""
_PROGRAMS = ("slurmdbd", "mariadbd", "sacct", "sacctmgr")
_TABLES = ("mysql/mysql_system_tables.sql", "mysql/mariadb_system_tables.sql", "mariadb/mariadb_system_tables.sql")
"""What MariaDB makes its own tables of, below /usr/share; the name changed with its versions."""
_READY = "/etc/slurm/accounting-is-ready"
_MARIADB = (
    "/usr/sbin/mariadbd --no-defaults --user=root --datadir=/var/lib/db --socket=/run/mysqld/mysqld.sock "
    "--pid-file=/run/mariadbd.pid --skip-networking --skip-grant-tables --init-file=/etc/db.sql "
    "--innodb-buffer-pool-size=16M --innodb-log-file-size=4M --innodb-flush-log-at-trx-commit=0 "
    "--innodb-lock-wait-timeout=900 --innodb-doublewrite=0 --innodb-flush-method=nosync --innodb-file-per-table=0 "
    "--sync-frm=0 --performance-schema=0"
)


def missing() -> str:
    """What this host lacks for accounting, with how to get it; empty when nothing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return (
            f"Slurm's accounting in the tests needs {', '.join(absent)}: `scripts/setup --dev --slurm` (`make test` "
            "does it), or `apt-get install -y --no-install-recommends slurmdbd slurm-client mariadb-server-core`"
        )
    return ""


class AccountedCluster(SlurmCluster):
    """See `SlurmCluster`. `database`: the machine of slurmdbd and MariaDB; `down()` there ends slurmdbd."""

    def __init__(self, keep: Path, settings: Mapping[str, str], partitions: Sequence[str]) -> None:
        if why := missing():
            import pytest

            pytest.fail(why, pytrace=False)
        self.database_port = port_for_a_program()
        ours = {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(self.database_port),
            "AccountingStoragePass": "/run/munge/socket",
        }
        super().__init__(keep, {**ours, **settings}, partitions)
        self.outlets = [self.port, self.database_port]
        self.hold = f"while [ ! -e {_READY} ]; do sleep 0.05; done"
        self.database: Part

    def manage(self, *commands: str) -> None:
        """What an administrator types to `sacctmgr`."""
        done = self.database.run("sacctmgr", "--immediate", stdin="\n".join([*commands, "quit", ""]).encode())
        said = (done.stdout + done.stderr).decode()
        if done.returncode or "rror" in said:
            raise AssertionError(f"sacctmgr {'; '.join(commands)}: {said}")

    def until_forgotten(self, *jobs: str) -> None:
        """Waits until the controller has forgotten these tasks (`MinJobAge` after their end)."""
        until(lambda: all(not self.state(job) for job in jobs), f"a controller without {jobs}", self.told)

    def stop(self) -> None:
        super().stop()
        if getattr(self, "database", None) is not None:
            self.database.kill()

    def told(self) -> str:
        logs = [self.database.disk / "var/log" / name for name in ("slurmdbd.log", "mariadbd.log")]
        more = [f"-- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs if log.is_file()]
        return "\n".join([super().told(), *more])

    def _start_more(self, part: Callable[..., Part]) -> None:
        config = self.etc / "slurmdbd.conf"
        lines = {
            "AuthType": "auth/munge",
            "AuthInfo": "socket=/run/munge/socket",
            "DbdHost": "localhost",
            "DbdPort": str(self.database_port),
            "SlurmUser": "root",
            "LogFile": "/var/log/slurmdbd.log",
            "PidFile": "/run/slurmdbd.pid",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "localhost",
            "StorageUser": "root",
            "StorageLoc": "slurm_acct",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        config.chmod(0o600)
        # All that slurmdbd takes of MariaDB's own tables is the one of procedures.
        tables = next(path for name in _TABLES if (path := Path("/usr/share", name)).is_file()).read_text()
        procedures = next(line for line in tables.splitlines() if " IF NOT EXISTS proc (" in line)
        (self.etc / "db.sql").write_text(f"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n{procedures}\n")
        first = (
            "mkdir -p /var/lib/db /run/mysqld; cp /etc/slurm/db.sql /etc/db.sql; "
            f"{_MARIADB} >/var/log/mariadbd.log 2>&1 & "
            "while [ ! -S /run/mysqld/mysqld.sock ]; do sleep 0.05; done"
        )
        self.database = part("dbd", "slurmdbd", first, "/usr/sbin/slurmdbd -D")
        until(self._answers, "a slurmdbd", self.database_said, slurm_cluster.START_SECONDS)
        users = f"root,{slurm_cluster.OTHER_USER}"
        self.manage(
            f"add cluster {self.settings['ClusterName']}",
            f"add account {ACCOUNT} Description=tests Organization=tests",
            f"add user {users} Account={ACCOUNT}",
        )
        (self.etc / Path(_READY).name).touch()

    def database_said(self) -> str:
        """The last lines of the database's daemons."""
        return self.database.run("sh", "-c", "tail -n 20 /var/log/*.log").stdout.decode(errors="replace")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.database_port)) == 0
