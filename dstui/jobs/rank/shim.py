"""The shim: a process between any launcher and one rank, so that all launchers give the same information.

    LAUNCHER … shim.py [--local_rank=N] FOLDER TAG [env:FILE] [hook:MODE:ITS_FOLDER] [bind:WRAPPER] SCRIPT ARGS…
    or  … -m MODULE ARGS…

The rank gets its own log (FOLDER/logs/rank_N.log), a record of its life (FOLDER/ranks/rank_N.json: host, pid, start, end, exit status),
RANK and similar variables from whatever the launcher sets, and the job's tag in its environment. It dies with the shim, and the shim ends
with its launcher. Everything else passes through: --local_rank, signals, the exit status (128+n for a signal).

It uses little of the standard library and nothing else: it runs under the interpreter of the job (3.8 or newer), once per rank, and must be
cheap.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import sys
import time

NAMES = {  # the first variable that the launcher sets wins
    "RANK": ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK"),
    "LOCAL_RANK": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "MV2_COMM_WORLD_LOCAL_RANK"),
    "WORLD_SIZE": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "MV2_COMM_WORLD_SIZE"),
    "LOCAL_SIZE": ("LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
}
LAUNCHER_VARIABLES = ("CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT")
"""Variables that a launcher sets for each rank, which override the job's."""
PR_SET_PDEATHSIG = 1
LIMITS = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
"""Resource limits on memory; the rank inherits those of the shim."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ORPHAN_GRACE = 10.0
"""Seconds for a rank to end by itself after its launcher has died."""
RECORD = 1024
"""Bytes of a record. It is written in place, so that a rank's end can be recorded even on a full disk."""


def prctl(option: int, value: int) -> None:
    """Call prctl(2)."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def name_rank() -> int | None:
    """Set RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_SIZE in the environment from the launcher's variables. Return RANK."""
    for name, sources in NAMES.items():
        value = next((os.environ[source] for source in sources if os.environ.get(source)), None)
        if value is not None:
            os.environ[name] = value
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else None


def take_environment(path: str) -> None:
    """Set the environment of the ranks from a file of the job's owner, because no launcher passes all of it on.

    Accelerate appends the working folder to PYTHONPATH, which stays.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY, 0), "rb") as file:
        found = json.loads(file.read())
    longer = {"PYTHONPATH"} if os.environ.get("PYTHONPATH", "").startswith(found.get("PYTHONPATH", "")) else set()
    kept = {name for name in (*LAUNCHER_VARIABLES, *longer) if name in os.environ}
    os.environ.update({name: value for name, value in found.items() if name not in kept})


def command_of(words: list[str], local_rank: list[str]) -> list[str]:
    """Return the rank's own command. --local_rank goes before the script's arguments, where a launcher would put it."""
    target = 2 if words[0] == "-m" else 1
    return [sys.executable, "-u", *words[:target], *local_rank, *words[target:]]


def resolve_folder(words: list[str], rank: int | None) -> list[str]:
    """Return the words with this host's own folder of the job, if one command for several hosts names the same path on all of them."""
    shared = os.path.dirname(sys.argv[0])  # noqa: PTH120 - pathlib would double the import time
    try:
        own = os.readlink(f"{shared}/{rank}")  # noqa: PTH115
    except OSError:
        return words
    return [word.replace(shared, own) for word in words]


def put_hook_before(word: str, folder: str) -> None:
    """Let the rank's interpreter first import hook/sitecustomize.py, which restores this environment."""
    mode, _, hook = word.partition(":")
    if os.pathsep in hook or "\n" in folder:
        return  # such a path cannot be on PYTHONPATH: the rank is not observed
    before = os.environ.get("PYTHONPATH")
    os.environ["DSTUI_HOOK"] = f"{mode}\n{folder}/engine\n{'unset' if before is None else 'set'}"
    os.environ["PYTHONPATH"] = f"{hook}{os.pathsep}{before}" if before else hook


def become_rank(command: list[str], log: int) -> None:
    """In the child: die with the shim, reset its signal handling, write to the log. Does not return."""
    shim = os.getppid()
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            return
        for number in (*PASSED_ON, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"dstui: cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def wait_for(pid: int, launcher: int, heard: dict[str, object]) -> int:
    """Sleep until the rank has ended, and return its exit status, 128+n for signal n.

    `heard` gets a signal from another process and its sender, and at the end the rank's peak memory in bytes.

    A signal from the living launcher was sent to the rank too (launchers signal the whole tree or process group), so that only others are
    passed on: a second SIGTERM would interrupt a script that saves a checkpoint in its handler. If the launcher is dead, the rank is asked
    to end and, if it does not, killed.
    """
    deadline = float("inf")
    while True:
        left = min(deadline - time.monotonic(), 3600.0)
        news = signal.sigtimedwait((signal.SIGCHLD, *PASSED_ON), max(left, 0.0))
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            heard["max_rss"] = usage.ru_maxrss * 1024
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        orphaned = os.getppid() != launcher
        if news and news.si_signo != signal.SIGCHLD and (orphaned or news.si_pid != launcher):
            os.kill(pid, news.si_signo)
            heard["signal"] = signal.Signals(news.si_signo).name + sender(news.si_pid, orphaned)
            if orphaned and news.si_signo == signal.SIGTERM:
                deadline = min(deadline, time.monotonic() + ORPHAN_GRACE)
        elif time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            deadline = float("inf")


def sender(pid: int, orphaned: bool) -> str:
    """Describe the sender of a signal."""
    if orphaned:
        return ", because its launcher had died"
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read(100).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        words = "gone since"
    return f" from process {pid} ({words or 'the kernel'})"


def record(path: str, facts: dict[str, object]) -> None:
    """Write the whole record in place, or a new file if something else has its name. A failed write never affects the rank."""
    data = json.dumps(facts).encode().ljust(RECORD)
    try:
        try:
            fd = open_regular(path, os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            os.unlink(path)  # noqa: PTH108
            fd = open_regular(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))  # text appended by others would make it unreadable
        os.close(fd)
    except OSError as error:
        print(f"dstui: cannot write {path}: {error}", file=sys.stderr)


def open_regular(path: str, flags: int, mode: int) -> int:
    """Open a regular file, replacing anything else at its path. A deleted folder is created again."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, mode)
    except FileNotFoundError:
        try:  # noqa: SIM105 - contextlib and pathlib would double the import time
            os.mkdir(os.path.dirname(path), 0o700)  # noqa: PTH102, PTH120
        except FileExistsError:
            pass  # another rank has just created it
        fd = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    os.set_blocking(fd, True)  # the rank inherits it
    return fd


def open_log(path: str) -> int:
    """Open the rank's log. If that fails, its lines go to the launcher's own output."""
    try:
        return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        print(f"dstui: cannot write {path}: {error}; the rank's lines go to the launcher's log", file=sys.stderr)
        return 1


def boot() -> str:
    """Return the id of this boot of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def started_at() -> int:
    """Return the shim's start time in clock ticks since boot: with the pid, a unique name of the process."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the import time
        return int(file.read().rpartition(b")")[2].split()[19])


def limits() -> dict[str, int]:
    """Return the limits that are set, in bytes, by the command that sets each."""
    soft = {name: resource.getrlimit(number)[0] for name, number in LIMITS.items()}
    return {name: most for name, most in soft.items() if most != resource.RLIM_INFINITY}


def main(argv: list[str]) -> int:
    """Run one rank and return its exit status."""
    launcher = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *PASSED_ON))  # from here on no signal is lost
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:
        return 128 + signal.SIGTERM  # it died before PR_SET_PDEATHSIG took effect
    local_rank = argv[:1] if argv and argv[0].startswith(("--local_rank", "--local-rank")) else []
    folder, tag, *words = resolve_folder(argv[len(local_rank) :], name_rank())
    if words[0].startswith("env:"):
        take_environment(words.pop(0).partition(":")[2])
    hook = words.pop(0).partition(":")[2] if words[0].startswith("hook:") else ""
    bind = ["/bin/sh", words.pop(0).partition(":")[2]] if words[0].startswith("bind:") else []
    command = [*bind, *command_of(words, local_rank)]
    rank = name_rank()
    if rank is None:
        print(f"dstui: the launcher gave this process no rank (none of {', '.join(NAMES['RANK'])} is set)", file=sys.stderr)
        return 2
    os.environ["DSTUI_JOB"] = tag
    log = open_log(f"{folder}/logs/rank_{rank}.log")
    child = os.fork()
    if child == 0:
        if hook:
            put_hook_before(hook, folder)
        become_rank(command, log)
    facts: dict[str, object] = {
        "rank": rank,
        "host": os.uname().nodename,
        "pid": child,
        "shim": os.getpid(),
        "ticks": started_at(),
        "boot": boot(),
        "started": time.time(),
        "world_size": int(os.environ["WORLD_SIZE"]) if os.environ.get("WORLD_SIZE", "").isdigit() else None,
        "local_rank": int(os.environ["LOCAL_RANK"]) if os.environ.get("LOCAL_RANK", "").isdigit() else None,
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "master": [os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")],
        "tag": tag,
        "limits": limits(),
        "ended": None,
        "exit_code": None,
    }
    record(f"{folder}/ranks/rank_{rank}.json", facts)
    code = wait_for(child, launcher, facts)
    record(f"{folder}/ranks/rank_{rank}.json", {**facts, "ended": time.time(), "exit_code": code})
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
