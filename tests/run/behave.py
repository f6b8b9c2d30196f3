"""A rank that behaves as its arguments say, without torch: `all:WORD` or `RANK:WORD`, in their order.

exit N - kill (itself) - wait FILE (until it exists) - hang - deaf (to SIGTERM) - helper FILE (leaves a process in a session of its own,
with an empty environment, its pid in the file) - say TEXT - noise - polite (on SIGTERM: says so, and ends with 0) - facts
"""

import json
import os
import signal
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


def behave(word: str, rest: str) -> None:
    """Do one thing."""
    if word == "exit":
        sys.exit(int(rest))
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "wait":
        while not Path(rest).exists():
            time.sleep(0.02)
    elif word == "hang":
        time.sleep(1000)
    elif word == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif word == "polite":
        signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
    elif word == "helper":
        child = subprocess.Popen(["/bin/sleep", "1000"], env={}, start_new_session=True)
        Path(rest).write_text(str(child.pid))
    elif word == "say":
        print(rest, flush=True)
    elif word == "noise":
        for line in NOISE:
            os.write(1, line)
    elif word == "facts":
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "DSTUI_DS_CONFIG", "PYTHONUNBUFFERED", "PATH", "DSTUI_JOB")
        facts = {"argv": sys.argv, "env": {name: os.environ.get(name) for name in names}, "cwd": os.getcwd()}
        print(json.dumps({**facts, "stdin": os.readlink("/proc/self/fd/0"), "sigint": str(signal.getsignal(signal.SIGINT))}))


if __name__ == "__main__":
    print("ready", flush=True)
    for argument in sys.argv[1:]:
        who, colon, what = argument.partition(":")
        if colon and who in ("all", os.environ["RANK"]):
            behave(*what.partition(" ")[::2])
