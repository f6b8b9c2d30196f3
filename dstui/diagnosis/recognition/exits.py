"""Parse how processes ended from the output of launchers and shells, translating exit statuses and distrusting the reported rank.

DeepSpeed's launcher prints the command of the rank that it started last beside the status of the one that failed. torchrun reports the
first that ended, not the first that failed. A rank is therefore used only if the program must know it.
"""

from __future__ import annotations

import re
import signal

from dstui.base.dataclass import dataclass

SIGNAL_CAUSES = {
    1: "SIGHUP",
    2: "CTRL-C",
    15: "CTRL-C",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS-SHM",
    9: "KILLED-UNKNOWN",
    11: "SIGSEGV",
}
"""The signature of a death by signal if nothing else is known."""
TIMED_OUT = 124
"""The exit status of timeout(1) after it had to stop its command."""
WORDS = {
    "Killed": -9,
    "Out Of Memory": -9,
    "Segmentation fault": -11,
    "Segmentation fault (core dumped)": -11,
    "Bus error": -7,
    "Bus error (core dumped)": -7,
    "Aborted": -6,
    "Aborted (core dumped)": -6,
    "Terminated": -15,
}
"""Words of srun and shells for a task's end instead of a number."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one process. `code` is negative for a signal."""

    code: int
    rank: int | None = None
    task: int | None = None
    local: bool = False
    """True if `rank` is only the local rank on its host."""
    spawned: bool = False
    """True if torch.multiprocessing.spawn reported it, which ends the other processes after the first failure."""
    reported: bool = False
    """True if the launcher reports it as the first failure, with one rank."""
    whole: bool = False
    """True if it is the launcher's own end, which stands for the run."""


def translated(code: int) -> int:
    """Return an exit status as its signal, negative: 137 is -9, and so is 247, since DeepSpeed exits with the negative number itself.

    255 stays: exit(-1), ssh and containers use it for any failure, so it does not mean SIGHUP.
    """
    if 128 < code <= 128 + 64:
        return 128 - code
    return code - 256 if 192 < code < 255 else code


DS_LINE = re.compile(r"exits with return code = (-?\d+)")
TORCHRUN_LINE = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
SPAWN_LINE = re.compile(r"\bprocess (\d+) terminated with (?:signal (SIG[A-Z]+)|exit code (\d+))")
SRUN_LINE = re.compile(
    r"^\s*srun: (?:error: )?(\S+:|StepId=\S+|step:\S+) tasks? ([\d,-]+): (?:Exited with exit code (\d+)|(exited abnormally)|(.+))$"
)
RANK_ENDS = (
    re.compile(r"\[rank: (?P<rank>\d+)\] Child process with PID \d+ terminated with code (?P<code>-?\d+)"),  # Lightning
    re.compile(r"\bRank (?P<rank>\d+) crashed with exit code (?P<code>-?\d+)"),  # Composer
    re.compile(r"Global rank (?P<rank>\d+) \(PID \d+\) exited with code (?P<code>-?[1-9]\d*)"),
    re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>[1-9]\d*)"),  # Horovod
    re.compile(r"Process name: (?:\[\[\d+,\d+\],|\[[\w.@-]+,)?(?P<rank>\d+)\]?\s*$"),  # Open MPI and Horovod; the status follows it
    re.compile(r"noticed that process rank (?P<rank>\d+) .*exited on(?: signal (?P<signal>\d+)|$)"),  # newer releases break the line there
    re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)"),
    re.compile(r"Abort\((?P<code>-?\d+)\) on node \d+ \(rank (?P<rank>\d+) in comm"),  # MPICH and Intel MPI
    re.compile(r": rank (?P<rank>\d+) (?:exited with code (?P<code>[1-9]\d*)|died from signal (?P<signal>\d+))"),  # PALS
    re.compile(r"^Container rank (?P<rank>\d+) status failed"),  # PaddlePaddle
    re.compile(r"^=\s+RANK (?P<rank>\d+) PID \d+ RUNNING AT"),
    re.compile(r"exit status of rank (?P<rank>\d+): (?:killed by signal (?P<signal>\d+)|return code (?P<code>\d+))"),
)
"""Launchers' messages about one rank's end. Without a status it was a failure."""
STATUS_LINE = re.compile(r"^=?\s*(?:(?:Exit code|EXIT CODE|EXIT STATUS)\s*: +(?P<code>\d+)|(?:KILLED BY SIGNAL:|signal) (?P<signal>\d+))\b")
"""The status of the rank that the previous line names."""
PADDLE_STATUS_LINE = re.compile(r"^LAUNCH INFO \S+ \S+ Exit code (?P<code>-?\d+)$")
"""The same from PaddlePaddle's launcher."""
PDSH_LINE = re.compile(r"ssh exited with exit code (\d+)")
SHELL_LINE = re.compile(
    r"(?i)^(?:[\u2600-\u27bf\U0001f300-\U0001faff]\ufe0f? ?)?(?:\[[\w ]+\]\s*)?(?:job |process |training )?"
    r"(?:(?:exit(?:ed)?|finished|failed)(?: with)?(?: exit)? (?:status|code)|exit_?code|returned)\s*[:=]?\s*(-?\d+)"
    r"(?: \(interrupted by signal \d+: SIG\w+\))?\.?$"
)
SHORT = 200
"""Characters; a shell's line is shorter."""
CONTAINER_LINE = re.compile(r"^(?:command terminated with exit code|\S+ exited with code|\S* ?Process completed with exit code) (\d+)\.?$")
"""Messages of kubectl and docker compose about a container's end."""
LSF_DONE = re.compile(r"^Subject: Job \d+(?:\[\d+\])?: <.*> in cluster <[^>]*> Done$")
"""The report of IBM Spectrum LSF about a job that ended with 0; it is appended to the job's output."""
MAKE_LINE = re.compile(r"^make(?:\[\d+\])?: \*\*\* \[.*\] Error (\d+)")
AZURE_LINE = re.compile(r"User process '\S+' exited with status code (\d+)|process_rank=\d+ exit_code=(\d+) ")
"""The reports of Azure ML's lifecycler and of its execution wrapper."""
KUBEFLOW_LINE = re.compile(r"\b(?:PyTorch|MPI|TF|Train|XGBoost)\w* \S+ is failed because [1-9]\d* \w+ replica")
"""The event of a Kubeflow job, some of whose pods failed."""
CHILD_LINE = re.compile(r"CalledProcessError: Command .*(?:returned non-zero exit status (\d+)|died with <Signals\.\w+: (\d+)>)")
SGLANG_LINE = re.compile(r"(?:Received sigquit from a child process|SIGQUIT received\..{0,60})\. It usually means \w+ child failed")
"""The message of SGLang's server when one of its processes failed, before it ends all of them (srt/managers/tokenizer_manager.py)."""
DSTUI_LINE = re.compile(r"^dstui: rank (\d+) on \S+ ended with (\d+)(: it was killed after rank \d+ had failed)?$")


def exits_in(text: str) -> list[Exit]:
    """Return the ends that one line reports; usually none."""
    if found := DS_LINE.search(text):
        return [Exit(translated(int(found[1])), whole=True)]
    if found := TORCHRUN_LINE.search(text):
        return [Exit(int(found[1]), int(found[2]), local=True)]
    if found := SPAWN_LINE.search(text):
        number = signal.Signals.__members__.get(found[2]) if found[2] else None
        return [Exit(-number if number else int(found[3] or 1), int(found[1]), local=True, spawned=True)]
    if found := SRUN_LINE.match(text):
        code = translated(int(found[3])) if found[3] else 1 if found[4] else WORDS.get(found[5].strip())
        return [Exit(code, task=task) for task in _tasks(found[2])] if code is not None else []
    if found := next((words for line in RANK_ENDS if (words := line.search(text))), None):
        groups = found.groupdict()
        return [Exit(_status(groups), int(found["rank"]), reported=True)]
    if found := DSTUI_LINE.match(text):
        return [] if found[3] else [Exit(translated(int(found[2])), int(found[1]))]
    if found := PDSH_LINE.search(text):
        return [Exit(translated(int(found[1])), whole=True)]
    if found := CONTAINER_LINE.match(text.strip()) or MAKE_LINE.match(text):
        return [Exit(translated(int(found[1])), whole=True)]
    if found := AZURE_LINE.search(text):
        return [Exit(translated(int(found[1] or found[2])), whole=True)]
    if (failed := any(line.search(text) for line in (KUBEFLOW_LINE, SGLANG_LINE))) or LSF_DONE.match(text):
        return [Exit(int(failed), whole=True)]
    if found := CHILD_LINE.search(text):
        return [Exit(int(found[1]) if found[1] else -int(found[2]), whole=True)] if "ninja" not in text else []
    if found := SHELL_LINE.match(text.strip()[:SHORT]):
        return [Exit(translated(int(found[1])), whole=True)]
    return []


def status_in(text: str) -> int | None:
    """Return the status in a line for the rank that an earlier line has named."""
    found = STATUS_LINE.match(text) or PADDLE_STATUS_LINE.match(text.strip())
    return _status(found.groupdict()) if found else None


def _status(found: dict[str, str | None]) -> int:
    """Return the exit status of a rank; 1 if none is given."""
    signal_number = found.get("signal")
    return -int(signal_number) if signal_number else translated(int(found.get("code") or 1))


def _tasks(text: str) -> list[int]:
    """Expand `24,26-28`, the tasks that srun names."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found += range(int(first), int(last or first) + 1)
    return found[:4096]
