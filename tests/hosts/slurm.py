"""A real SLURM on the test hosts: munged, slurmctld on login, a slurmd on each host. No systemd, no accounting.

If the kernel allows, slurmd tracks processes by cgroup as real clusters do: whatever a step has started is killed when the step ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from farm import Farm

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
CONFIGURATION = """\
ClusterName=farm
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={state}/munge.socket
ProctrackType=proctrack/{track}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=1
StateSaveLocation={state}/slurmctld
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd-%n.pid
SlurmdSpoolDir={state}/slurmd-%n
GresTypes=gpu
NodeName={hosts} CPUs=4 RealMemory=2000 Gres=gpu:2
PartitionName=all Nodes={hosts} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why SLURM cannot run here; empty if it can."""
    absent = [program for program in NEEDED if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")]
    return f"SLURM needs {', '.join(absent)}" if absent else ""


CGROUPS = """\
mkdir -p /sys/fs/cgroup && mount -t tmpfs cgroups /sys/fs/cgroup && cd /sys/fs/cgroup && mkdir all freezer &&
mount -t cgroup -o freezer cgroups all && mkdir all/{name} && mount --bind all/{name} freezer
"""
NO_FREEZER = "umount /sys/fs/cgroup/freezer"
NO_CGROUPS = """\
cd /sys/fs/cgroup/all || exit
for try in 1 2 3 4 5 6 7 8 9; do
  cat $(find {name} -name cgroup.procs) | xargs -r kill -9
  find {name} -depth -type d -exec rmdir {{}} + && break
  sleep 0.1
done
"""


class Slurm:
    """SLURM on a farm. Use it as a context manager; `run` runs a command on login as a user of SLURM would."""

    def __init__(self, farm: Farm, state: Path) -> None:
        self.farm, self.state = farm, state
        self.processes: list[subprocess.Popen[bytes]] = []
        self.variables = {**os.environ, "SLURM_CONF": str(state / "slurm.conf")}

    def __enter__(self) -> Slurm:
        (self.state / "slurmctld").mkdir(parents=True)
        track = "cgroup" if all(self._on(host, CGROUPS) for host in self.farm.hosts) else "linuxproc"
        (self.state / "slurm.conf").write_text(CONFIGURATION.format(state=self.state, hosts=",".join(self.farm.hosts), track=track))
        (self.state / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")  # any devices do: no rank opens them
        (self.state / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint=/sys/fs/cgroup\n")
        key = self.state / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        names = {name: f"--{name}-file={self.state}/munge.{name}" for name in ("key", "pid", "log", "seed")}
        self._start("munged", ["munged", "--foreground", "--force", f"--socket={self.state}/munge.socket", *names.values()])
        try:
            self.before_controller()
            self.start_controller()
            for host in self.farm.hosts:
                self._start(f"slurmd-{host}", self.farm.command(host, ["slurmd", "-D", "-N", host]))
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        living = [host for host in self.farm.hosts if self.farm.processes[host].poll() is None]
        for host in living:
            self._on(host, NO_FREEZER)
        for host in self.farm.hosts:  # also of a host that was switched off: all share one hierarchy
            self._on(living[0], NO_CGROUPS, of=host)

    def _on(self, host: str, script: str, of: str = "") -> bool:
        """Return whether a shell script succeeds on a host; {name} is its own cgroup, or another host's."""
        return self.farm.run(host, "sh", "-c", script.format(name=f"{self.farm.name}-{of or host}")).returncode == 0

    def _start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        path = {"PATH": os.environ["PATH"] + ":/usr/sbin"}
        with (self.state / f"{name}.out").open("ab") as log:
            self.processes.append(subprocess.Popen(words, stdout=log, stderr=log, env=self.variables | path, start_new_session=True))
        return self.processes[-1]

    def before_controller(self) -> None:
        """Start what slurmctld needs; here nothing."""

    def start_controller(self) -> None:
        """Start slurmctld on login with the state of an earlier one."""
        self.controller = self._start("slurmctld", self.farm.command("login", ["slurmctld", "-D", "-i"]))

    def stop_controller(self) -> None:
        """Stop slurmctld, as an update does."""
        self.farm.run("login", "scontrol", "shutdown", "slurmctld", env=self.variables)
        self.controller.wait(timeout=60)

    def run(self, *words: str, timeout: float = 60) -> str:
        """Run a command on login and return its output."""
        ran = self.farm.run("login", *words, env=self.variables, timeout=timeout)
        return ran.stdout + ran.stderr

    def _wait(self, seconds: float = 60) -> None:
        """Wait until every node is idle."""
        deadline = time.monotonic() + seconds
        while self.run("sinfo", "-h", "-o", "%T %D").split() != ["idle", str(len(self.farm.hosts))]:
            if time.monotonic() > deadline:
                texts = "".join(path.read_text() for path in self.state.glob("*.out"))
                raise RuntimeError(f"SLURM did not start: {texts[-2000:]}")
            time.sleep(0.1)

    def jobs(self) -> list[str]:
        """Return the names of all jobs in squeue."""
        return self.run("squeue", "--noheader", "--format=%j").split()

    def state_of(self, job: str) -> str:
        """Return a job's state, such as PENDING, RUNNING or COMPLETED."""
        return self.facts_of(job).get("JobState", "")

    def facts_of(self, job: str) -> dict[str, str]:
        """Return what `scontrol show job` prints: JobState, Restarts, Requeue and so on."""
        words = self.run("scontrol", "show", "job", job).split()
        return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}
