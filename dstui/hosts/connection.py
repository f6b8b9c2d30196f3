"""One connection to the agent of a host: a process (ssh, srun) whose pipes never block.

connection = Connection(agent_by_ssh("h1", python), opening)
select on connection.output, connection.errors, and, while connection.unsent, on connection.input
connection.write(); for frame in connection.read(): ...
connection.ended, connection.complaint, connection.close()
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from dstui.hosts import agent
from dstui.hosts.frames import AgentFrame, AgentFrames
from dstui.hosts.ssh import ssh_command

BOOT = (
    "import sys; sys.version_info < (3, 8) and sys.exit('Python %d.%d is too old: 3.8 is needed' % sys.version_info[:2]); "
    "exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())), 'agent', 'exec'))"
)
"""The program on the remote command line: it reads the agent's source, which an older Python could not parse, from standard input."""
MAX_READ = 1 << 18
LONGEST_COMPLAINT = 1 << 12


@cache
def source() -> bytes:
    """Return the agent's source, preceded by its length."""
    text = Path(agent.__file__).read_bytes() + b"\n\nmain()\n"
    return b"%d\n" % len(text) + text


def boot_command(*pythons: str) -> list[str]:
    """Return the command that runs an agent under the first of these interpreters that exists."""
    run = 'command -v "$python" >/dev/null 2>&1 && exec "$python" -u -I -S -c "$0"'
    search = f'cd / && for python; do {run}; done; echo "no Python here" >&2; exit 127'
    return ["sh", "-c", search, BOOT, *pythons]


def agent_by_ssh(host: str, python: str) -> list[str]:
    """Return the command of an agent on another host, over ssh."""
    return ssh_command(host, boot_command(python, "python3"))


def agent_here(_host: str, python: str) -> list[str]:
    """Return the command of an agent on this host."""
    return boot_command(python, "python3")


class Connection:
    """A process that reaches an agent. Raises OSError if it cannot be started."""

    def __init__(self, command: Sequence[str], opening: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=_default_signals,  # noqa: PLW1509 - there are no threads here
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self.pid = self._process.pid
        self.input, self.output, self.errors = (pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr))
        for fd in (self.input, self.output, self.errors):
            os.set_blocking(fd, False)
        self.unsent = bytearray(source())
        self.ended = False
        """True if the agent sends nothing more."""
        self._frames, self._complaint = AgentFrames(), b""
        self.tell(opening)

    def tell(self, order: Mapping[str, Any]) -> None:
        """Queue an order."""
        self.unsent += json.dumps(order).encode() + b"\n"
        self.write()

    def write(self) -> None:
        """Send as much of the queue as the pipe takes."""
        try:
            while self.unsent:
                del self.unsent[: os.write(self.input, self.unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.unsent.clear()  # the reason is in the agent's output

    def read(self) -> Iterator[AgentFrame]:
        """Yield the frames that have arrived. Raises FrameError."""
        data = self._take(self.output)
        if data == b"":
            self.ended = True
        if data:
            yield from self._frames.feed(data)

    def read_errors(self) -> bool:
        """Read the errors of ssh and the remote shell, keeping the end. Return False at the end of the stream."""
        data = self._take(self.errors)
        self._complaint = (self._complaint + (data or b""))[-LONGEST_COMPLAINT:]
        return data != b""

    @property
    def complaint(self) -> str:
        """The errors of ssh and the remote shell as text."""
        return self._complaint.decode(errors="replace")

    def close(self) -> None:
        """Close the connection. The agent exits at the end of its input."""
        with suppress(OSError):
            self.read_errors()
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        with suppress(OSError):
            self._process.wait()

    @staticmethod
    def _take(fd: int) -> bytes | None:
        """Read what is available; b"" at the end, None if nothing has arrived."""
        try:
            return os.read(fd, MAX_READ)
        except BlockingIOError:
            return None
        except OSError:
            return b""


def _default_signals() -> None:
    """Unblock all signals that this process blocks: ssh has children of its own."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


UNBUFFERED = ("--unbuffered", "--input=0", "--quiet", "--mpi=none", "--kill-on-bad-exit=0")
IN_OWN_ALLOCATION = """\
job=$(squeue --noheader --states=RUNNING --format=%A --name="$0" --nodelist="$1" | head -n 1)
name=$0 && shift && exec srun --job-name="$name" ${job:+--jobid="$job"} "$@"
"""
"""The first connection to a host makes the allocation; later ones find it by its name."""
ANSWERS = 30.0
"""Seconds for SLURM's controller to answer."""


def allocation_name(tag: str) -> str:
    """Return the name in squeue of the allocations that a job makes for itself."""
    return f"dstui-{tag}"


def agent_by_srun(host: str, python: str, *, tag: str, allocation: str) -> list[str]:
    """Return the command of an agent on a host, beside other steps. `allocation`: SLURM's job number; "" if the job makes its own."""
    # The ranks of a step use all CPUs of the job.
    step = ["--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", f"--nodelist={host}", *UNBUFFERED, *boot_command(python, "python3")]
    if allocation:
        return ["srun", f"--jobid={allocation}", *step]
    return ["sh", "-c", IN_OWN_ALLOCATION, allocation_name(tag), host, *step]


def release(tag: str) -> str:
    """Cancel the allocations that a job made for itself. Return why that failed; "" if it did not."""
    words = ["scancel", f"--user={os.geteuid()}", f"--name={allocation_name(tag)}"]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
        problem = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2] if ran.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    return f"SLURM's allocation could not be released ({problem}): {shlex.join(words)} does it" if problem else ""
