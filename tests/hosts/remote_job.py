"""Run a job on several test hosts: start it as a user on the host login would, break it, and see what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from farm import Farm, command_of

from dstui.jobs.store.folder import JobFolder
from dstui.logs.log_folder import FINAL
from tests.job_json import status_json
from tests.waiting import wait_for

BEHAVE = Path(__file__).parent.parent / "jobs/behave.py"


class RemoteJob:
    """One job. DeepSpeed's launcher starts without torch (tests/bare_launcher) on login and on every host, by PYTHONPATH."""

    def __init__(self, farm: Farm, path: Path) -> None:
        self.farm, self.path = farm, path
        self.folder = JobFolder(path / "job")
        self.dstui: subprocess.Popen[str] | None = None
        self.within: list[str] = []
        """Words before the dstui command, such as those of an allocation."""
        self.environment: dict[str, str] = {}

    def start(
        self,
        *behaviour: str,
        hosts: str = "h1: 1, h2: 1",
        cluster: str = "",
        job: str = "",
        run: str = "",
        env: Mapping[str, str] = MappingProxyType({}),
        words: Sequence[str] = (),
    ) -> None:
        """Start `dstui --headless` on login, with ranks that do what the words of tests/jobs/behave.py say."""
        texts = ", ".join(json.dumps(word) for word in behaviour)
        plan = {
            "job": job or f"{{script: {BEHAVE}, args: [{texts}], workdir: {self.path}}}",
            "cluster": f"{{{f'hosts: {{{hosts}}}, ' if hosts else ''}env: {json.dumps({'DS_ACCELERATOR': 'cpu', **env})}{', ' + cluster if cluster else ''}}}",
            "run": f"{{{run}}}",
            "deepspeed": "{train_micro_batch_size_per_gpu: 1, optimizer: {type: AdamW, params: {lr: 1e-3, torch_adam: true}}}",
        }
        file = self.path / "plan.yaml"
        file.write_text("version: 1\nname: far\n" + "".join(f"{key}: {value}\n" for key, value in plan.items()))
        self.dstui = self._popen("--headless", str(file), "--no-preflight", "--run-dir", str(self.folder.path), *words)

    def _popen(self, *words: str) -> subprocess.Popen[str]:
        command = self.farm.command("login", [*self.within, sys.executable, "-m", "dstui", *words])
        env = {**os.environ, **self.environment, "DS_ACCELERATOR": "cpu"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env)

    def run(self, *words: str, host: str = "login") -> subprocess.CompletedProcess[str]:
        """Run another dstui command, on login or on another host with the same folders."""
        return self.farm.run(host, sys.executable, "-m", "dstui", *words, timeout=120, env={**os.environ, **self.environment})

    def diagnosis(self) -> dict[str, Any]:
        """Return `dstui diagnose --json` of the job."""
        found: dict[str, Any] = json.loads(self.run("diagnose", str(self.folder.path), "--json").stdout)
        return found

    def wait(self) -> tuple[int, str, str]:
        """Return the command's exit status and output."""
        assert self.dstui
        out, err = self.dstui.communicate(timeout=180)
        return self.dstui.returncode, out, err

    def interrupt(self, number: int) -> None:
        """Send a signal to the dstui command (the process below nsenter)."""
        assert self.dstui
        for pid in self.farm.pids("login"):
            words = command_of(pid).split(b"\0")
            if words[1:4] == [b"-m", b"dstui", b"--headless"]:
                os.kill(pid, number)

    @property
    def status(self) -> dict[str, Any]:
        """Return status.json."""
        return status_json(self.folder)

    def ready(self, *ranks: int) -> None:
        """Wait until these ranks have written "ready"."""
        wait_for(lambda: all("ready" in self.log(rank) for rank in ranks or (0, 1)), otherwise=self.words)

    def ended(self) -> dict[str, Any]:
        """Return the final status."""
        wait_for(lambda: self.status.get("state") in FINAL, otherwise=self.words)
        return self.status

    def log(self, rank: int) -> str:
        """Return a rank's log as far as it has arrived."""
        with suppress(OSError):
            return self.folder.log(rank).read_text(errors="replace")
        return ""

    def words(self) -> str:
        """Return all logs that may explain a failure."""
        files = (self.folder.events_file, self.folder.launcher_log, self.folder.supervisor_log)
        return "\n".join(path.read_text(errors="replace") for path in files if path.exists())

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind so far."""
        return [event for _, event in self.folder.read_events() if event.get("event") == kind]

    def pids(self, host: str) -> list[int]:
        """Return the machine's pids of the processes on a host that carry the job's tag."""
        found, mark = [], f"DSTUI_JOB={self.status['tag']}".encode()
        for pid in self.farm.pids(host):
            with suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def nothing_left(self, *gone: str) -> None:
        """Assert that no process or folder of the job is on any host, except the folders of lost hosts in a shared /tmp."""
        tag = f"dstui-{self.status['tag']}"
        theirs = {tag, *(f"{tag}-{host}" for host in gone)} if gone and self.farm.shared_tmp else set()
        left = {host: set(self.left(host)) - theirs for host in ("login", *self.farm.hosts) if host not in gone}
        assert not any(left.values()), left

    def left(self, host: str) -> list[str]:
        """Return what is left of the job on a host: processes and its folder."""
        words = [command_of(pid).replace(b"\0", b" ").decode() for pid in self.pids(host)]
        return words + [name for name in self.farm.run(host, "ls", "/tmp").stdout.split() if name.startswith(f"dstui-{self.status['tag']}")]

    def silence(self) -> None:
        """Simulate the loss of the host that supervises the job: kill its dstui processes, unplug it, and age the heartbeat by two minutes."""
        self.kill_on("login", "dstui.jobs.supervisor", str(self.folder.path))
        self.farm.cable("login", plugged=False)
        self.silence_since(time.time() - 120)

    def silence_since(self, then: float) -> None:
        """Set the time of the last heartbeat."""
        os.utime(self.folder.heartbeat_file, (then, then))

    def kill_rank(self, rank: int, host: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a rank, from outside."""
        for pid in self.pids(host):
            words = command_of(pid).split(b"\0")
            if str(BEHAVE).encode() in words[:4] and f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, number)

    def kill_on(self, host: str, *words: str, number: int = signal.SIGKILL) -> int:
        """Signal the processes of a host whose command line holds all of these words; return their number."""
        found = 0
        for pid in self.farm.pids(host):
            with suppress(OSError):
                command = command_of(pid).replace(b"\0", b" ").decode(errors="replace")
                if all(word in command for word in words):
                    os.kill(pid, number)
                    found += 1
        return found
