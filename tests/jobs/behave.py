"""A rank without torch that does what its arguments say, in order: `all:WORD REST` or `RANK:WORD REST`.

Each word is a function below. A lock is the lock of an op's build, a buffer is a file that DeepSpeed leaves in /dev/shm.
"""

import builtins
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NOISE = (
    b"\x1b[31mred\x1b[0m\n",
    b"  0%|  | 0/3\r 33%|# | 1/3\r100%|##| 3/3\n",
    b"caf\xe9 \xff\xfe\n",
    b"\x1b]0;owned\x07\x1b[2J\x1b[Hcleared\n",
    b"x" * 1_000_000 + b"\n",
    b"step 7 loss 0.25\n",
    b"the last line has no end",
)
FACTS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "DSTUI_DS_CONFIG", "PYTHONUNBUFFERED", "PATH", "DSTUI_JOB")
LOCKS: list[int] = []
NINJAS: list[subprocess.Popen[bytes]] = []
SOCKETS: list[socket.socket] = []


def wait(path: str) -> None:
    """Wait until a file exists."""
    while not Path(path).exists():
        time.sleep(0.02)


def checkpoint(path: str) -> None:
    """Save a checkpoint as DeepSpeed does: the file that names the latest one is written last."""
    folder = Path(path) / "global_step10"
    folder.mkdir(parents=True, exist_ok=True)
    folder.with_name("latest").write_text(folder.name)


def once(rest: str) -> None:
    """Exit with a status, unless that was done before."""
    path, code = rest.split()
    if not Path(path).exists():
        Path(path).touch()
        sys.exit(int(code))


def polite(_: str) -> None:
    """Handle SIGTERM by exiting with 0."""
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))


def helper(path: str) -> None:
    """Leave a process behind, in a new session and without any environment; write its pid to the file."""
    child = subprocess.Popen(["/bin/sleep", "1000"], env={}, start_new_session=True)
    Path(path).write_text(str(child.pid))


def lock(path: str) -> None:
    """Begin to build an op: a ninja that runs a compiler."""
    ninja = Path(path).with_name("ninja")
    ninja.parent.mkdir(parents=True)
    ninja.symlink_to("/bin/sh")
    NINJAS.append(subprocess.Popen([str(ninja), "-c", "sleep 1000; true"]))
    LOCKS.append(os.open(path, os.O_CREAT | os.O_EXCL))


def release(path: str) -> None:
    """Finish the build."""
    Path(path).with_name("op.so").touch()
    NINJAS.pop().kill()
    os.close(LOCKS.pop())
    Path(path).unlink()


def buffer(_: str) -> None:
    """Leave a small version of the buffer of DeepSpeed's CPU collectives."""
    address = "_".join(os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"))
    Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_{address}").write_bytes(b"66 MiB")


def listen(_: str) -> None:
    """Listen on the master port, on rank 0."""
    if os.environ["RANK"] == "0":
        SOCKETS.append(socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))))


def noise(_: str) -> None:
    """Print what no terminal should receive."""
    for line in NOISE:
        os.write(1, line)


def facts(_: str) -> None:
    """Print the environment of the rank."""
    found = {"argv": sys.argv, "env": {name: os.environ.get(name) for name in FACTS}, "cwd": str(Path.cwd())}
    print(json.dumps({**found, "stdin": str(Path("/proc/self/fd/0").readlink()), "sigint": str(signal.getsignal(signal.SIGINT))}))


def fail(rest: str) -> None:
    """Raise a built-in exception."""
    name, _, text = rest.partition(" ")
    raise getattr(builtins, name)(text)


def eat(_: str) -> None:
    """Allocate memory until that fails or the process is killed."""
    eaten = []
    while True:
        eaten.append(b"x" * (1 << 26))


def watchdog(pause: str) -> None:
    """Abort after a while, as NCCL's watchdog does when a collective times out."""
    time.sleep(float(pause))
    rank = os.environ["RANK"]
    work = "WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=272, NumelOut=272, Timeout(ms)=600000)"
    caught = f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600021 milliseconds before timing out."
    where = f"[rank{rank}]:[E1128 02:11:21.000000000 ProcessGroupNCCL.cpp"
    down = "To avoid data inconsistency, we are taking the entire process down."
    thrown = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  "
    ended = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: "
    print(f"{where}:685] {caught}\n{where}:732] [Rank {rank}] {down}\n{thrown}{ended}{caught}", file=sys.stderr, flush=True)
    os.abort()


def count(rest: str) -> None:
    """Print numbered lines, with a pause after each."""
    most, pause = rest.split()
    for number in range(int(most)):
        print(number, flush=True)
        time.sleep(float(pause))


WORDS = {
    "exit": lambda code: sys.exit(int(code)),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda _: time.sleep(1000),
    "deaf": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "say": lambda text: print(text, flush=True),
    **{
        function.__name__: function
        for function in (wait, eat, fail, once, checkpoint, polite, helper, count, lock, release, buffer, listen, noise, facts, watchdog)
    },
}

if __name__ == "__main__":
    if os.environ.get("DSTUI_DS_CONFIG"):
        Path(os.environ["DSTUI_DS_CONFIG"]).read_text()  # as every rank does under DeepSpeed
    print("ready", flush=True)
    for argument in sys.argv[1:]:
        who, colon, what = argument.partition(":")
        if colon and who in ("all", os.environ["RANK"]):
            word, _, rest = what.partition(" ")
            WORDS[word](rest)
