"""The agent: the program that dstui runs on each host of a job. It is sent over the connection as source and needs only Python 3.8.

It starts the host's command in a session of its own, sends home what the ranks write, reports which of them are gone, and on request ends
every process that carries the job's tag, with proof. It ends with its standard input. The job does not: a lost connection costs no
training.

Orders are lines of JSON on standard input. The first one opens the session; no other may follow before the answer "hello":
    {"folder": PATH,               the job folder as the commands and files of the order name it
     "name": NAME,                 this host's name: hosts may share a disk, so each has a folder of its own (own_place)
     "known": PATH | null,         the job folder on this host, if an earlier "hello" said it
     "ranks": [N],                 the ranks that a launcher of several hosts starts here by PATH (lead_to)
     "tag": TAG, "attempt": N, "have": {FILE: bytes}, "make": bool, "files": {NAME: text}, "needs": {...},
     "gauge": PYTHON | null,        the interpreter that runs the file nvml.py here, which reports the GPUs' state
     "stays": bool}                 whether the command would end with the agent: the agent then stays until the command has ended
Later ones, in any number:
    {"do": "start", "attempt": N, "argv": [...] | null, "cwd": PATH, "env": {...}} runs once for each attempt, however often it is sent;
                                                                                    null: another host starts the ranks
    {"do": "stop", "linger": seconds, "ask": bool}                                  answered by "swept"
    {"do": "stacks", "at": time}                                                    the hooks of the ranks write their Python stacks
    {"do": "clean"}                                                                 removes the folder; answered by "bye"

Its output, after the line READY, are frames: a line of JSON, followed by the `size` bytes that it announces. Key "is":
    hello (time, there, folder, lacks)   refused (text)   log (file, at, size)   record (file, size)   beat (time)
    gpus (size)   ended (attempt, exit_code, text)   swept (left)   bye
Files are named relative to the job folder, which has the same layout on this host as at home. Times are seconds since the epoch by this
host's clock.

This is one long file because it is sent as it is: it cannot import dstui. It repeats code for ending processes
(dstui/jobs/supervisor/escalation.py) and checking files (dstui/base/regular_files.py). An Agent serves the connection with a Folder (the
job folder here), an Outbox (what the ranks write), Records (which ranks are gone) and a Gauge (the GPUs).
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

READY = b"\0dstui agent 1\n"
"""The first line of the output; a login shell may print text before it."""
TAG = "DSTUI_JOB"
BEAT = 2.0
"""Seconds between two heartbeats."""
BUSY, IDLE = 0.1, 0.4
"""Seconds between two looks at the files: while they grow, and otherwise."""
SHIM = "shim.py"
"""The program that starts each rank."""
GAUGE, GAUGED = "nvml.py", 5.0
"""The program that reports the GPUs' state, and the seconds between two of its lines."""
CHUNK, BUDGET = 1 << 18, 1 << 22
"""Bytes of one frame, and of one turn."""
LARGEST_RECORD, LARGEST_STATE = 1 << 16, 1 << 12
ANSWERS = 20
"""Seconds for the job's interpreter to answer."""
STUCK = 60
"""Seconds after which an agent exits if nobody reads its output."""
STEP, GRACE, POLL = 5.0, 0.5, 0.1
"""As in dstui/jobs/supervisor/escalation.py: seconds per step of the escalation, for launchers after their ranks, between two looks."""
LAUNCHER = "deepspeed.launcher."
RANK_FILE = re.compile(r"rank_([0-9]{1,5})\.(?:log|jsonl?|stacks)")
BUFFERS = "/dev/shm/deepspeed_allreduce_buffer_%d_%s_%s_*"
"""Shared memory that DeepSpeed leaves for each rank on a CPU (dstui/jobs/store/cleanup.py)."""
Process = Tuple[int, int]
"""Pid, and start time in clock ticks since boot."""


class NotPossible(Exception):
    """Nothing can be done here. Holds the reason as a sentence."""


def ticks_of(pid: int) -> Optional[int]:
    """Return the start time of a process in clock ticks since boot; None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def command_of(pid: int) -> str:
    """Return a process' command line as one text."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def tagged(tag: str) -> Set[Process]:
    """Return (pid, ticks) of each process of this user that carries the tag."""
    found, mark = set(), f"{TAG}={tag}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    carries = mark in file.read().split(b"\0")
            except OSError:
                continue
            ticks = ticks_of(int(name)) if carries else None
            if ticks is not None:
                found.add((int(name), ticks))
    return found


def handles(pid: int, number: int) -> bool:
    """Return whether a process handles a signal; it would end any other."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def send(process: Process, number: int) -> None:
    """Signal a process if it is still the same one."""
    if ticks_of(process[0]) == process[1]:
        try:
            os.kill(process[0], number)
        except OSError:
            pass


def open_plain(path: str, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file. Raises OSError for other files."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def read_plain(path: str, at: int, most: int) -> bytes:
    """Return up to `most` bytes of a regular file; b"" if there is none."""
    try:
        fd = open_plain(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(fd, most, at)
    finally:
        os.close(fd)


def write_plain(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically."""
    new = f"{path}.{os.getpid()}"
    fd = open_plain(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(new, path)


def own_folder(path: str, make: bool) -> bool:
    """Create the job folder here, or check the existing one: owned by this user alone, no link. Return whether it exists."""
    if make:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise NotPossible(f"cannot make the folder {path}: {error.strerror}") from None
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NotPossible(f"{path} is not this user's own folder: another user created it")
    return True


def own_place(order: Dict[str, Any]) -> str:
    """Return the path of the job folder on this host, existing or not: in the temporary folder of TMPDIR, else in /tmp.

    Older versions of dstui used the same path on every host.
    """
    name, known = order["name"], order["known"]
    bases = [base for base in (os.environ.get("TMPDIR"), "/tmp") if base and os.path.isabs(base)]
    places = [os.path.join(base, name) for base in bases]
    if known and os.path.basename(known) == name:
        places.insert(0, known)
    found = [place for place in places if os.path.isdir(place)]
    if not found and os.path.isdir(os.path.join(order["folder"], "logs")):
        found = [order["folder"]]
    writable = [place for place in places if os.access(os.path.dirname(place), os.W_OK)]
    return (found or writable or places)[0]


def lead_to(folder: str, shared: str, ranks: List[int]) -> None:
    """Let the shims of these ranks find the folder of this host, if one command for several hosts names the same path on all."""
    own_folder(shared, True)
    for name, there in [(SHIM, os.path.join(folder, SHIM)), *((str(rank), folder) for rank in ranks)]:
        try:
            os.symlink(there, os.path.join(shared, name))
        except FileExistsError:
            pass


def lead_away(folder: str, shared: str) -> None:
    """Undo lead_to. The last of the hosts that share the disk removes the rest."""
    own, others = (folder, os.path.join(folder, SHIM)), False
    for path in glob.glob(os.path.join(glob.escape(shared), "*")):
        try:
            if os.readlink(path) in own:
                os.unlink(path)
            else:
                others = True
        except OSError:
            pass
    if not others and own_folder(shared, False):
        shutil.rmtree(shared, ignore_errors=True)


class Folder:
    """The job folder on this host, and the names of the files in it."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self.path = own_place(order)
        self.called: str = order["folder"]
        self.attempt: int = order["attempt"]

    def here(self, text: str) -> str:
        """Return a text with the job's name for the folder replaced by its path on this host."""
        return text.replace(self.called, self.path)

    def file(self, name: str) -> str:
        """Return the path of a file of the job."""
        return os.path.join(self.path, name)

    def place(self, name: str) -> str:
        """Return the path of a file or folder of this attempt, relative to the job folder."""
        return name if self.attempt == 1 else f"attempts/{self.attempt}/{name}"

    def names(self, part: str) -> List[str]:
        """Return the files of the ranks in a folder of this attempt."""
        try:
            found = os.listdir(self.file(self.place(part)))
        except OSError:
            return []
        return [self.place(f"{part}/{name}") for name in found if RANK_FILE.fullmatch(name)]

    def states(self) -> Iterator[Tuple[str, bytes]]:
        """Yield the states that the ranks' hooks report: file and content."""
        for name in self.names("engine"):
            if name.endswith(".json"):
                yield name, read_plain(self.file(name), 0, LARGEST_STATE)

    def size(self, name: str) -> int:
        """Return the size of a file; 0 if there is none."""
        try:
            return os.lstat(self.file(name)).st_size
        except OSError:
            return 0

    def write(self, files: Dict[str, str]) -> None:
        """Write the files of an order."""
        for name, text in files.items():
            *inner, last = [part for part in name.split("/") if part.strip(".")]
            os.makedirs(os.path.join(self.path, *inner), 0o700, exist_ok=True)
            write_plain(os.path.join(self.path, *inner, last), self.here(text).encode(), 0o700)

    def prepare(self) -> None:
        """Create the folders of an attempt."""
        for part in ("logs", "ranks"):
            os.makedirs(self.file(self.place(part)), 0o700, exist_ok=True)

    def begin(self) -> bool:
        """Mark this attempt as begun. Return whether it was not yet."""
        try:
            os.close(os.open(self.file(f"begun-{self.attempt}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def remove(self) -> None:
        """Remove the folder, and the links that lead to it."""
        if own_folder(self.path, False):
            shutil.rmtree(self.path, ignore_errors=True)
        if self.path != self.called:
            lead_away(self.path, self.called)


def lacks(needs: Dict[str, Any]) -> List[str]:
    """Return, as sentences, what the job needs and this host lacks."""
    found = []
    cwd, python, port = (needs.get(key) for key in ("cwd", "python", "port"))
    script = os.path.join(cwd or "/", needs.get("script") or "")
    if cwd and not os.path.isdir(cwd):
        found.append(f"there is no folder {cwd} (job.workdir)")
    elif needs.get("script") and not os.path.isfile(script):
        found.append(f"there is no file {script} (job.script)")
    if python and not shutil.which(python):
        found.append(f"there is no interpreter {python} (job.python)")
    elif python and needs.get("module"):
        found.extend(lacks_module(python, needs["module"], needs.get("env") or {}))
    if port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                found.append(f"port {port} cannot be used ({error.strerror}): give another cluster.master_port")
    return found


def lacks_module(python: str, module: str, env: Dict[str, str]) -> List[str]:
    """Return whether the job's interpreter lacks the launcher's module. The module is not imported, which may take seconds."""
    ask = f"import importlib.util, sys; sys.exit(3 * (importlib.util.find_spec({module!r}) is None))"
    try:
        ended = subprocess.run([python, "-c", ask], cwd="/", env={**os.environ, **env}, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{python} cannot be run (job.python): {error}"]
    if ended.returncode == 3:
        return [f"{python} has no {module}: install it there, or name another interpreter (job.python)"]
    if ended.returncode:
        words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return [f"{python} is not a working Python (job.python): {words}"]
    return []


class Home:
    """The other end of standard output, where the frames go."""

    def __init__(self) -> None:
        self.deaf = False  # nobody reads: the agent still finishes what it began

    def put(self, what: str, data: bytes = b"", **facts: Any) -> None:
        """Write one frame. Its reader counts as gone when it blocks for 60 s."""
        if self.deaf:
            return
        frame = memoryview(json.dumps({**facts, "is": what, "size": len(data)}).encode() + b"\n" + data)
        signal.alarm(STUCK)
        try:
            while frame:
                frame = frame[os.write(1, frame) :]
        except OSError:
            self.deaf = True


class Outbox:
    """Sends what the ranks write: the growth of logs, and states that changed."""

    def __init__(self, folder: Folder, home: Home, sent: Dict[str, int]) -> None:
        self.folder, self.home = folder, home
        self.sent = dict(sent)  # file -> bytes that are at home already
        self.states: Dict[str, bytes] = {}  # file -> the last reported state of a rank's hook

    def send_logs(self) -> bool:
        """Send what the logs have grown by, a piece of each in turn. Return whether there was any."""
        moved, budget = False, BUDGET
        engine = [name for name in self.folder.names("engine") if name.endswith((".jsonl", ".stacks"))]
        growing = [*self.folder.names("logs"), *engine, "launcher.log"]
        while growing and budget > 0:
            for name in list(growing):
                size = self._send_piece(name)
                budget -= size
                moved = moved or size > 0
                if size < CHUNK:
                    growing.remove(name)
        return moved

    def _send_piece(self, name: str) -> int:
        """Send a piece of a file. Return its size."""
        at = self.sent.get(name, 0)
        data = read_plain(self.folder.file(name), at, CHUNK) if self.folder.size(name) > at else b""
        if data:
            self.home.put("log", data, file=name, at=at)
            self.sent[name] = at + len(data)
        return len(data)

    def send_states(self) -> None:
        """Send the states that changed."""
        for name, data in self.folder.states():
            if data and self.states.get(name) != data:
                self.states[name] = data
                self.home.put("state", data, file=name)


class Records:
    """The records of the ranks: which have begun, have ended or are gone."""

    def __init__(self, folder: Folder, tag: str) -> None:
        self.folder, self.tag = folder, tag
        self.read: Dict[str, Tuple[int, Dict[str, Any]]] = {}  # file -> (modification time, content)
        self.waiting: Dict[str, Tuple[bytes, int]] = {}  # file -> (its bytes, bytes of the log to send first)
        self.lost: Dict[str, float] = {}  # file -> when its rank was last seen alive

    def look(self) -> None:
        """Queue the records that are new, and those of ranks that are gone. A rank's end is sent after its last line."""
        for name in self.folder.names("ranks"):
            try:
                written = os.lstat(self.folder.file(name)).st_mtime_ns
            except OSError:
                continue
            known = self.read.get(name)
            if known is None or known[0] != written:
                self._queue(name, written)
            elif known[1].get("exit_code") is None and "shim" in known[1] and name not in self.lost:
                if ticks_of(known[1]["shim"]) == known[1].get("ticks"):
                    continue
                self._queue(name, written)  # the rank may have written its end in between
                if self.read[name][1].get("exit_code") is None:
                    self.lost[name] = time.time()
                    self._queue(name, written)

    def _queue(self, name: str, written: int) -> None:
        """Queue a record in its present state, to be sent after the present content of its log."""
        data = read_plain(self.folder.file(name), 0, LARGEST_RECORD)
        try:
            facts = json.loads(data.decode())
            if not isinstance(facts, dict) or facts.get("tag") != self.tag or not isinstance(facts.get("shim", 0), int):
                return
        except ValueError:
            return  # half-written: the next look reads all of it
        self.read[name] = (written, facts)
        if name in self.lost:
            data = json.dumps(dict(facts, lost=self.lost[name])).encode()
        self.waiting[name] = (data, self.folder.size(log_of(name)))

    def send(self, home: Home, sent: Dict[str, int]) -> bool:
        """Send the records whose logs are sent. Return whether there was any."""
        ready = [name for name, (_, after) in self.waiting.items() if sent.get(log_of(name), 0) >= after]
        for name in ready:
            home.put("record", self.waiting.pop(name)[0], file=name)
        return bool(ready)

    def living(self) -> Set[Any]:
        """Return the pids of living ranks."""
        return {facts.get("pid") for _, facts in self.read.values() if facts.get("exit_code") is None}

    def buffers(self) -> Iterator[str]:
        """Yield DeepSpeed's shared memory of this job's own rendezvous."""
        for _, facts in self.read.values():
            master = facts.get("master")
            if isinstance(master, list) and len(master) == 2 and all(isinstance(part, str) and "/" not in part for part in master):
                yield from glob.glob(BUFFERS % (os.getuid(), glob.escape(master[0]), glob.escape(master[1])))


def log_of(record: str) -> str:
    """Return the log of the rank that a record belongs to."""
    return record.replace("ranks/", "logs/").replace(".json", ".log")


class Gauge:
    """A child process that asks NVML for the GPUs' state: a call into the driver may hang."""

    def __init__(self, python: str, program: str) -> None:
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        self.begun = b""  # the beginning of an incomplete line
        words = [python, "-u", program, "--watch", str(GAUGED)]
        try:
            self.process = subprocess.Popen(words, cwd="/", stdin=subprocess.PIPE, stdout=theirs, stderr=subprocess.DEVNULL)
        except OSError:
            self.end()
        os.close(theirs)

    def newest(self) -> bytes:
        """Return the newest line that has arrived; b"" if there is none."""
        if self.process is None:
            return b""
        try:
            data = os.read(self.output, CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            self.end()
            return b""
        *lines, self.begun = (self.begun + data).split(b"\n")
        return lines[-1] if lines and len(lines[-1]) <= CHUNK else b""

    def end(self) -> None:
        """Close both pipes: the child ends with its standard input, also if the agent is killed."""
        if self.output >= 0:  # only once: the child may have ended by itself
            os.close(self.output)
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process, self.output = None, -1


def end_all(tag: str, linger: float, ranks: Callable[[], Set[Any]], turn: Callable[[], Any]) -> Set[Process]:
    """End all processes of the job here after `linger` seconds to end by themselves, these ranks first. Return those that are left.

    Each step is harder than the one before. Between two looks the agent takes its turn.
    """
    members = partial(tagged, tag)
    left = until_gone(members, linger, turn)
    alive = ranks()
    asked = [process for process in left if process[0] in alive]
    if asked:
        for process in asked:
            send(process, signal.SIGTERM)
        until_gone(lambda: {process for process in asked if ticks_of(process[0]) == process[1]}, STEP, turn)
        left = until_gone(members, GRACE, turn)
    if left:
        for process in left:
            send(process, signal.SIGKILL if LAUNCHER in command_of(process[0]) else signal.SIGTERM)
        left = until_gone(members, STEP, turn)
    if left:
        left = until_gone(members, STEP, turn, signal.SIGKILL)
    return left


def until_gone(members: Callable[[], Set[Process]], seconds: float, turn: Callable[[], Any], number: int = 0) -> Set[Process]:
    """Wait until no process is left, at most `seconds`. Return those that are left.

    Two empty looks are needed: one may fall between a fork and an exec.
    """
    deadline, empty = time.monotonic() + seconds, 0
    while True:
        turn()
        left = members()
        empty = 0 if left else empty + 1
        if empty == 2 or (left and time.monotonic() >= deadline):
            return left
        if number:
            for process in left:
                send(process, number)
        time.sleep(POLL)


class Agent:
    """Serves one connection: executes its orders, and tells it what happens on this host."""

    def __init__(self, order: Dict[str, Any], home: Home) -> None:
        self.home, self.folder = home, Folder(order)
        self.tag: str = order["tag"]
        self.outbox = Outbox(self.folder, home, order["have"])
        self.records = Records(self.folder, self.tag)
        self.reported: Set[int] = set()  # attempts whose end was reported
        self.begun: Set[int] = set()  # attempts whose command this agent process started
        self.stays: bool = order["stays"]
        self.input, self.beat_at, self.done = b"", 0.0, False
        self.gauge: Optional[Gauge] = None
        if self.stays:
            signal.signal(signal.SIGTERM, stay_on)
        self._open(order)

    def _open(self, order: Dict[str, Any]) -> None:
        """Prepare the job folder and answer the first order."""
        folder, make = self.folder, order["make"]
        there = own_folder(folder.path, make)
        if there:
            folder.write(order["files"])
            folder.prepare()
            if make and order["ranks"]:
                lead_to(folder.path, folder.called, order["ranks"])
        self.home.put("hello", time=time.time(), there=there, folder=folder.path, lacks=lacks(order["needs"]) if make else [])
        if there and order.get("gauge") and os.path.isfile(folder.file(GAUGE)):
            self.gauge = Gauge(order["gauge"], folder.file(GAUGE))

    def run(self) -> None:
        """Serve until standard input ends or everything is done."""
        while not self.done and not self.home.deaf:
            moved = self.turn()
            if select.select([0], [], [], BUSY if moved else IDLE)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                *lines, self.input = (self.input + data).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line.decode()))

    def stay(self) -> None:
        """Stay alive while the ranks run: SLURM ends what a step started when the step ends."""
        signal.alarm(0)
        if self.gauge:
            self.gauge.end()
        ends = [self.folder.file(f"ended-{attempt}") for attempt in self.begun] if self.stays else []
        while os.path.isdir(self.folder.path) and not all(map(os.path.exists, ends)):
            time.sleep(IDLE)

    def turn(self) -> bool:
        """Look at everything once. Return whether anything has changed."""
        signal.alarm(STUCK)
        now = time.monotonic()
        if now >= self.beat_at:
            self.beat_at = now + BEAT
            self.home.put("beat", time=time.time())
            self.outbox.send_states()
        gpus = self.gauge.newest() if self.gauge else b""
        if gpus:
            self.home.put("gpus", gpus)
        self.records.look()
        moved = self.outbox.send_logs()
        moved = self.records.send(self.home, self.outbox.sent) or moved
        return self.tell_end() or moved

    def tell_end(self) -> bool:
        """Report the end of the host's command, once."""
        attempt = self.folder.attempt
        if attempt in self.reported:
            return False
        data = read_plain(self.folder.file(f"ended-{attempt}"), 0, LARGEST_RECORD)
        if data:
            self.reported.add(attempt)
            self.home.put("ended", **json.loads(data.decode()))
        return bool(data)

    def obey(self, order: Dict[str, Any]) -> None:
        """Execute one order."""
        if order["do"] == "start":
            self.start(order)
        elif order["do"] == "stop":
            self.stop(order["linger"], order["ask"])
        elif order["do"] == "stacks":
            self.ask_for_stacks()
        elif order["do"] == "clean":
            self.folder.remove()
            self.home.put("bye")
            self.done = True

    def start(self, order: Dict[str, Any]) -> None:
        """Start the host's command, if it has one, once per attempt and in a keeper process that outlives the agent."""
        folder = self.folder
        folder.attempt = order["attempt"]
        folder.prepare()
        if order["argv"] is None or not folder.begin():
            return
        self.begun.add(folder.attempt)
        env = {name: folder.here(text) for name, text in order["env"].items()}
        order = dict(order, argv=list(map(folder.here, order["argv"])), env=env)
        if os.fork() == 0:
            try:
                keep(order, folder.path, self.tag)
            finally:
                os._exit(0)

    def stop(self, linger: float, ask: bool) -> None:
        """End all processes of the job here, after `linger` seconds to end by themselves. With `ask`, ask the ranks to end first."""
        left = end_all(self.tag, linger, self.records.living if ask else set, self.turn)
        for path in self.records.buffers() if not left else ():
            try:
                os.unlink(path)
            except OSError:
                pass
        while self.turn() and not self.home.deaf:
            pass  # everything that the job has written here goes home
        self.home.put("swept", left=[f"{pid} {command_of(pid)[:120]}" for pid, _ in sorted(left)])

    def ask_for_stacks(self) -> None:
        """Signal the living ranks whose hook writes stacks at that. The files are sent home as logs are."""
        members = dict(tagged(self.tag))
        for _, data in self.folder.states():
            try:
                facts = json.loads(data)
            except ValueError:
                continue
            pid, number = facts.get("pid"), facts.get("signal")
            if isinstance(pid, int) and pid in members and isinstance(number, int) and 34 <= number <= 64 and handles(pid, number):
                send((pid, members[pid]), number)


def keep(order: Dict[str, Any], folder: str, tag: str) -> None:
    """In a child process: start the command in a session of its own, wait for its end, and record it."""
    os.setsid()
    signal.alarm(0)
    log = open_plain(os.path.join(folder, "launcher.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDWR)
    for fd, to in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, to)  # an open pipe of sshd would keep the connection open
    os.closerange(3, 1024)
    env = dict(os.environ, **order["env"])
    beside = os.path.dirname(order["argv"][0])
    if beside:
        env["PATH"] = os.pathsep.join(filter(None, [beside, env.get("PATH")]))
    facts = {"attempt": order["attempt"], "text": ""}
    try:
        code = subprocess.Popen(order["argv"], cwd=order["cwd"], env=dict(env, **{TAG: tag, "PWD": order["cwd"]})).wait()
        facts["exit_code"] = code if code >= 0 else 128 - code
    except OSError as error:
        facts.update(exit_code=127, text=f"cannot start {order['argv'][0]} in {order['cwd']}: {error.strerror}")
    record_end(folder, facts)


def record_end(folder: str, facts: Dict[str, Any]) -> None:
    """Write the end of the host's command. A full disk only delays it: without it, the job could wait forever."""
    while os.path.isdir(folder):
        try:
            write_plain(os.path.join(folder, f"ended-{facts['attempt']}"), json.dumps(facts).encode())
            return
        except OSError:
            time.sleep(BEAT)


def stay_on(*_: object) -> None:
    """Ignore the SIGTERM by which SLURM announces the end of a step: it gives the supervisor time to end the ranks and to tidy up by us.

    A handler, for an ignored signal would be ignored by the ranks too.
    """


def give_up(*_: object) -> None:
    """Exit: nobody has read the output for 60 s."""
    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def main() -> None:
    """Serve one connection."""
    signal.signal(signal.SIGALRM, give_up)
    opening, home = sys.stdin.buffer.readline(), Home()
    os.write(1, READY)
    try:
        agent = Agent(json.loads(opening.decode()), home)
        agent.run()
        agent.stay()
    except NotPossible as why:
        home.put("refused", text=str(why))
