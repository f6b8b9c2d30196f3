"""SLURM with accounting on the test hosts: slurmdbd and its MariaDB run on login."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import slurm as slurming

from tests.waiting import wait_for

NEEDED = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr")
CONFIGURATION = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=login
AccountingStoragePass={state}/munge.socket
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MinJobAge=2
PartitionName=all Nodes={hosts} Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes={hosts} MaxTime=1 PriorityTier=5 State=UP
"""
REPLACED = {"SelectTypeParameters=CR_Core": "SelectTypeParameters=CR_Core_Memory", "TaskPlugin=task/none": "TaskPlugin=task/cgroup"}
"""Cgroups allocate and limit memory, so that the kernel ends a job that uses more than it requested."""
MEMORY = """\
cd /sys/fs/cgroup && mkdir limits memory && mount -t cgroup -o memory cgroups limits && mkdir limits/{name} && mount --bind limits/{name} memory
"""
NO_MEMORY = "umount /sys/fs/cgroup/memory; find /sys/fs/cgroup/limits/{name} -depth -type d -exec rmdir {{}} +"
DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
DbdHost=login
SlurmUser=root
PidFile={state}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
StoragePass=farm
StorageLoc=farm
"""
GRANT = "CREATE USER slurm@'%' IDENTIFIED BY 'farm';\nGRANT ALL ON farm.* TO slurm@'%';\n"


def missing() -> str:
    """Return why accounting is impossible here; empty if it is possible."""
    absent = [program for program in NEEDED if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")]
    if Path("/proc/cgroups").read_text().find("\nmemory\t") < 0:
        return "a job's memory is limited by cgroups of version 1, which this kernel has not"
    return slurming.missing() or (f"accounting needs {', '.join(absent)} (Debian: slurmdbd, mariadb-server)" if absent else "")


def configuration() -> str:
    """Return slurm.conf as a template."""
    head = slurming.CONFIGURATION.partition("PartitionName=")[0]
    for without, accounted in REPLACED.items():
        head = head.replace(without, accounted)
    return head + CONFIGURATION


class SlurmWithAccounting(slurming.Slurm):
    """SLURM with accounting, in which root may use the account `physics`. Its files are below `state`."""

    def before_controller(self) -> None:
        """Limit memory; start the database and slurmdbd, and register the cluster."""
        for host in self.farm.hosts:
            assert self._on(host, MEMORY), "this kernel has no memory cgroup of version 1"
        with (self.state / "cgroup.conf").open("a") as file:
            file.write("ConstrainRAMSpace=yes\n")
        data, grant, config = self.state / "mariadb", self.state / "grant.sql", self.state / "slurmdbd.conf"
        grant.write_text(GRANT)
        config.write_text(DATABASE.format(state=self.state))
        config.chmod(0o600)  # slurmdbd refuses another mode
        common = ["--no-defaults", f"--datadir={data}", "--user=root"]
        bare = ["--auth-root-authentication-method=normal", "--skip-test-db"]  # without anonymous users, who would precede `slurm`
        subprocess.run(["mariadb-install-db", *common, *bare], check=True, capture_output=True)
        own = ["--bind-address=127.0.0.1", f"--socket={data}/socket", f"--pid-file={data}/pid", f"--init-file={grant}"]
        self._start("mariadbd", self.farm.command("login", ["mariadbd", *common, *own]))
        wait_for((data / "socket").exists, 60, otherwise=(self.state / "mariadbd.out").read_text)
        self._start("slurmdbd", self.farm.command("login", ["slurmdbd", "-D"]))
        wait_for(lambda: "Adding Cluster" in self.add("cluster", "farm"), 60, otherwise=(self.state / "slurmdbd.out").read_text)
        self.add("account", "physics")
        self.add("user", "root", "account=physics")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for host in self.farm.hosts:
            self._on(host, NO_MEMORY)

    def add(self, *words: str) -> str:
        """Add something to the database; return sacctmgr's output."""
        return self.run("sacctmgr", "--immediate", "add", *words)
