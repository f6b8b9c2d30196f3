"""The agent: what dstui runs on each host of a job, sent over the connection as source. Nothing is installed; Python 3.8 is enough.

It starts the host's command in a session of its own, brings home what the ranks write, says which of them are gone, and on request ends
everything that carries the job's tag, with proof. It ends with its standard input; the job does not: a lost connection costs no training.

Orders come as lines of JSON on standard input. The first one opens, and no other may come before it has been answered by "hello":
    {"folder": PATH,               the folder of the job, as the commands and files that are sent along call it
     "name": NAME,                 what it is called here: hosts may share a disk, so each has a folder of its own (own_place)
     "known": PATH | null,         where it is here, if that has been said before
     "ranks": [N],                 the ranks that a launcher of several hosts starts here by PATH (lead_to)
     "tag": TAG, "attempt": N, "have": {FILE: bytes}, "make": bool, "files": {NAME: text}, "needs": {...},
     "gauge": PYTHON | null,        the interpreter that runs the file nvml.py there, which tells what the GPUs do
     "stays": bool}                 whether what it starts would end with it: it then stays until that has ended
Later ones, in any number:
    {"do": "start", "attempt": N, "argv": [...] | null, "cwd": PATH, "env": {...}} once for each attempt, whoever asks how often;
                                                                                    null: another host starts the ranks
    {"do": "stop", "linger": seconds, "ask": bool}                                  answered by "swept"
    {"do": "clean"}                                                                 the folder goes; answered by "bye"

What it says, after the line READY, are frames: a line of JSON, followed by the `size` bytes that it announces. Key "is":
    hello (time, there, folder, lacks)   refused (text)   log (file, at, size)   record (file, size)   beat (time)
    gpus (size)   ended (attempt, exit_code, text)   swept (left)   bye
Files are named relative to the job's folder on this host, as in the job folder at home. Times are seconds since the epoch by this host.

One file, and longer than others here, because it is sent as it is: it can import nothing of dstui. What it does as others do here (finding
and ending processes as dstui/jobs/supervisor/escalation.py, checking files as dstui/base/regular_files.py) is written again.
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
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

READY = b"\0dstui agent 1\n"
"""What a login shell prints comes before it."""
TAG = "DSTUI_JOB"
BEAT = 2.0
"""Seconds between two signs of life."""
BUSY, IDLE = 0.1, 0.4
"""Seconds between two looks at the files: while they grow, and else."""
SHIM = "shim.py"
"""What starts each rank."""
GAUGE, GAUGED = "nvml.py", 5.0
"""The program that tells what the GPUs do, and the seconds between two of its lines."""
CHUNK, BUDGET = 1 << 18, 1 << 22
"""Bytes of one frame, and of one look."""
LARGEST_RECORD, LARGEST_STATE = 1 << 16, 1 << 12
ANSWERS = 20
"""Seconds that the job's interpreter gets to answer."""
STUCK = 60
"""Seconds after which an agent whose output nobody takes ends."""
STEP, GRACE, POLL = 5.0, 0.5, 0.1
"""As in dstui/jobs/supervisor/escalation.py: seconds per step of the escalation, for launchers after their ranks, between two looks."""
LAUNCHER = "deepspeed.launcher."
RANK_FILE = re.compile(r"rank_([0-9]{1,5})\.(?:log|jsonl?)")
BUFFERS = "/dev/shm/deepspeed_allreduce_buffer_%d_%s_%s_*"
"""What DeepSpeed leaves in memory for each rank on a CPU (dstui/jobs/store/cleanup.py)."""


class NotPossible(Exception):
    """Why nothing can be done here, as a sentence."""


Process = Tuple[int, int]
"""Pid, and start in clock ticks since boot."""


def say(what: str, data: bytes = b"", **facts: Any) -> bool:
    """Return one frame; whether anybody took it. Whose reader takes nothing for a minute ends."""
    frame = memoryview(json.dumps({**facts, "is": what, "size": len(data)}).encode() + b"\n" + data)
    signal.alarm(STUCK)
    try:
        while frame:
            frame = frame[os.write(1, frame) :]
    except OSError:
        return False
    return True


def ticks_of(pid: int) -> Optional[int]:
    """Return when a process started, in clock ticks since boot; None where it is gone or a zombie."""
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
    """(pid, ticks) of each process of this user that carries the tag."""
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


def send(process: Process, number: int) -> None:
    """Signal a process, if it is still the one that was looked at."""
    if ticks_of(process[0]) == process[1]:
        try:
            os.kill(process[0], number)
        except OSError:
            pass


def own_place(order: Dict[str, Any]) -> str:
    """Return where the job's folder is on this host, or is to be made: on the temporary disk that TMPDIR names, else in /tmp.

    Older versions of dstui gave it the same path on every host.
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
    """Let the shims of these ranks find the folder of this host, where one command for several hosts names the same path on all."""
    own_folder(shared, True)
    for name, there in [(SHIM, os.path.join(folder, SHIM)), *((str(rank), folder) for rank in ranks)]:
        try:
            os.symlink(there, os.path.join(shared, name))
        except FileExistsError:
            pass


def lead_away(folder: str, shared: str) -> None:
    """Take back what lead_to has made; the last of the hosts that share the disk removes the rest."""
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


def own_folder(path: str, make: bool) -> bool:
    """Make the job's folder here, or check the one that is there: a folder of this user's alone, no link. Whether it is there."""
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
        raise NotPossible(f"{path} is not a folder of this user's alone: somebody else has made it")
    return True


def open_plain(path: str, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file; OSError for anything else."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def read_plain(path: str, at: int, most: int) -> bytes:
    """At most so many bytes of a regular file; b"" where there is none."""
    try:
        fd = open_plain(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(fd, most, at)
    finally:
        os.close(fd)


def write_plain(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step."""
    new = f"{path}.{os.getpid()}"
    fd = open_plain(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(new, path)


def lacks(needs: Dict[str, Any]) -> List[str]:
    """Return what the job needs and this host does not have: sentences."""
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
    """Return whether the job's interpreter lacks what launches there. It is not imported, which may take seconds."""
    ask = f"import importlib.util, sys; sys.exit(3 * (importlib.util.find_spec({module!r}) is None))"
    try:
        ended = subprocess.run([python, "-c", ask], cwd="/", env={**os.environ, **env}, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{python} does not run (job.python): {error}"]
    if ended.returncode == 3:
        return [f"{python} has no {module}: install it there, or name another interpreter (job.python)"]
    if ended.returncode:
        words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return [f"{python} does not run as a Python (job.python): {words}"]
    return []


class Gauge:
    """A child that asks NVML what the GPUs do: in a driver one may hang."""

    def __init__(self, python: str, program: str) -> None:
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        self.begun = b""  # a line that is not whole yet
        words = [python, "-u", program, "--watch", str(GAUGED)]
        try:
            self.process = subprocess.Popen(words, cwd="/", stdin=subprocess.PIPE, stdout=theirs, stderr=subprocess.DEVNULL)
        except OSError:
            self.end()
        os.close(theirs)

    def newest(self) -> bytes:
        """Return the newest of the lines that have come; b"" where none has."""
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
        """Close both ends of it: the child ends with its standard input, as it does where the agent is killed."""
        if self.output >= 0:  # once: it may have ended by itself
            os.close(self.output)
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process, self.output = None, -1


class Agent:
    """Looks after the job on this host for one connection."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self.folder = own_place(order)
        self.called: str = order["folder"]
        self.tag: str = order["tag"]
        self.attempt: int = order["attempt"]
        self.sent: Dict[str, int] = dict(order["have"])  # file -> bytes that are at home
        self.records: Dict[str, Tuple[int, Dict[str, Any]]] = {}  # file -> (modification time, what the record says)
        self.waiting: Dict[str, Tuple[bytes, int]] = {}  # file of a record -> (its bytes, bytes of the log that go before it)
        self.states: Dict[str, bytes] = {}  # file -> what the hook of a rank said last that it does
        self.reported: Set[int] = set()  # attempts whose end has been told
        self.lost: Dict[str, float] = {}  # file of a record -> when its rank was last seen alive
        self.deaf = self.done = False
        self.stays: bool = order["stays"]
        self.begun: Set[int] = set()  # attempts whose command was started by this very agent
        self.input, self.beat_at = b"", 0.0
        self.gauge: Optional[Gauge] = None
        if self.stays:
            signal.signal(signal.SIGTERM, stay_on)
        there = own_folder(self.folder, order["make"])
        if there:
            for name, text in order["files"].items():
                *inner, last = [part for part in name.split("/") if part.strip(".")]
                os.makedirs(os.path.join(self.folder, *inner), 0o700, exist_ok=True)
                write_plain(os.path.join(self.folder, *inner, last), self.here(text).encode(), 0o700)
            self.prepare()
            if order["make"] and order["ranks"]:
                lead_to(self.folder, self.called, order["ranks"])
        self.put("hello", time=time.time(), there=there, folder=self.folder, lacks=lacks(order["needs"]) if order["make"] else [])
        if there and order.get("gauge") and os.path.isfile(os.path.join(self.folder, GAUGE)):
            self.gauge = Gauge(order["gauge"], os.path.join(self.folder, GAUGE))

    def put(self, what: str, data: bytes = b"", **facts: Any) -> None:
        """Write one frame. Where nobody is left to take it, what was begun is still ended."""
        self.deaf = self.deaf or not say(what, data, **facts)

    def here(self, text: str) -> str:
        """Return a text with the path of the folder on this host in the place of what the job calls it."""
        return text.replace(self.called, self.folder)

    def prepare(self) -> None:
        """Make the folders of an attempt."""
        for part in ("logs", "ranks"):
            os.makedirs(os.path.join(self.folder, self.place(part)), 0o700, exist_ok=True)

    def place(self, name: str) -> str:
        """Return a file or folder of this attempt, relative to the job's folder."""
        return name if self.attempt == 1 else f"attempts/{self.attempt}/{name}"

    def run(self) -> None:
        """Until standard input ends, or everything is done."""
        while not self.done and not self.deaf:
            moved = self.turn()
            if select.select([0], [], [], BUSY if moved else IDLE)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                self.input += data
                *lines, self.input = self.input.split(b"\n")
                for line in lines:
                    self.obey(json.loads(line.decode()))

    def stay(self) -> None:
        """SLURM ends whatever a step has started when the step ends: who has started the ranks stays, though nobody listens any more."""
        signal.alarm(0)
        if self.gauge:
            self.gauge.end()
        ends = [os.path.join(self.folder, f"ended-{attempt}") for attempt in self.begun] if self.stays else []
        while os.path.isdir(self.folder) and not all(map(os.path.exists, ends)):
            time.sleep(IDLE)

    def obey(self, order: Dict[str, Any]) -> None:
        """Follow one order."""
        if order["do"] == "start":
            self.start(order)
        elif order["do"] == "stop":
            self.stop(order["linger"], order["ask"])
        elif order["do"] == "clean":
            if own_folder(self.folder, False):
                shutil.rmtree(self.folder, ignore_errors=True)
            if self.folder != self.called:
                lead_away(self.folder, self.called)
            self.put("bye")
            self.done = True

    def start(self, order: Dict[str, Any]) -> None:
        """Start the host's command, if it has one, once for each attempt, by a keeper that outlives us."""
        self.attempt = order["attempt"]
        self.prepare()
        if order["argv"] is None:
            return
        try:
            os.close(os.open(os.path.join(self.folder, f"begun-{self.attempt}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
        self.begun.add(self.attempt)
        order = dict(order, argv=list(map(self.here, order["argv"])), env={name: self.here(text) for name, text in order["env"].items()})
        if os.fork() == 0:
            try:
                keep(order, self.folder, self.tag)
            finally:
                os._exit(0)

    def turn(self) -> bool:
        """Return one look at everything; whether anything has moved."""
        signal.alarm(STUCK)
        now = time.monotonic()
        if now >= self.beat_at:
            self.beat_at = now + BEAT
            self.put("beat", time=time.time())
            self.send_states()
        gpus = self.gauge.newest() if self.gauge else b""
        if gpus:
            self.put("gpus", gpus)
        self.read_records()
        moved = self.send_logs()
        for name, (data, after) in list(self.waiting.items()):
            if self.sent.get(self.log_of(name), 0) >= after:
                del self.waiting[name]
                self.put("record", data, file=name)
                moved = True
        return self.tell_end() or moved

    def log_of(self, record: str) -> str:
        """Return the log of the rank whose record this is."""
        return record.replace("ranks/", "logs/").replace(".json", ".log")

    def read_records(self) -> None:
        """Send which ranks have begun, ended, or are gone without a word. A rank's end goes home after its last line."""
        for name in self.names("ranks"):
            path = os.path.join(self.folder, name)
            try:
                written = os.lstat(path).st_mtime_ns
            except OSError:
                continue
            known = self.records.get(name)
            if known is None or known[0] != written:
                self.read_record(name, written)
            elif known[1].get("exit_code") is None and "shim" in known[1] and name not in self.lost:
                if ticks_of(known[1]["shim"]) == known[1].get("ticks"):
                    continue
                self.read_record(name, written)  # its last word may have come in between
                if self.records[name][1].get("exit_code") is None:
                    self.lost[name] = time.time()
                    self.read_record(name, written)

    def read_record(self, name: str, written: int) -> None:
        """Take a record as it is now, to be sent after what its log holds now."""
        data = read_plain(os.path.join(self.folder, name), 0, LARGEST_RECORD)
        try:
            facts = json.loads(data.decode())
            if not isinstance(facts, dict) or facts.get("tag") != self.tag or not isinstance(facts.get("shim", 0), int):
                return
        except ValueError:
            return  # half-written: the next look has it whole
        self.records[name] = (written, facts)
        if name in self.lost:
            data = json.dumps(dict(facts, lost=self.lost[name])).encode()
        try:
            after = os.lstat(os.path.join(self.folder, self.log_of(name))).st_size
        except OSError:
            after = 0
        self.waiting[name] = (data, after)

    def names(self, part: str) -> List[str]:
        """Return the files of the ranks in a folder of this attempt."""
        try:
            found = os.listdir(os.path.join(self.folder, self.place(part)))
        except OSError:
            return []
        return [self.place(f"{part}/{name}") for name in found if RANK_FILE.fullmatch(name)]

    def send_logs(self) -> bool:
        """Return what the logs have more than is at home, a piece of each in turn; whether there was any."""
        moved, budget = False, BUDGET
        growing = [*self.names("logs"), *[name for name in self.names("engine") if name.endswith(".jsonl")], "launcher.log"]
        while growing and budget > 0:
            for name in list(growing):
                at = self.sent.get(name, 0)
                data = read_plain(os.path.join(self.folder, name), at, CHUNK) if self.size(name) > at else b""
                if data:
                    self.put("log", data, file=name, at=at)
                    self.sent[name] = at + len(data)
                    budget -= len(data)
                    moved = True
                if len(data) < CHUNK:
                    growing.remove(name)
        return moved

    def send_states(self) -> None:
        """Send what the hook of each rank says that it does now, where that has changed."""
        for name in self.names("engine"):
            data = read_plain(os.path.join(self.folder, name), 0, LARGEST_STATE) if name.endswith(".json") else b""
            if data and self.states.get(name) != data:
                self.states[name] = data
                self.put("state", data, file=name)

    def size(self, name: str) -> int:
        """Return bytes of a file; 0 where there is none."""
        try:
            return os.lstat(os.path.join(self.folder, name)).st_size
        except OSError:
            return 0

    def tell_end(self) -> bool:
        """Return the end of the host's own command, once."""
        if self.attempt in self.reported:
            return False
        data = read_plain(os.path.join(self.folder, f"ended-{self.attempt}"), 0, LARGEST_RECORD)
        if data:
            self.reported.add(self.attempt)
            self.put("ended", **json.loads(data.decode()))
        return bool(data)

    def stop(self, linger: float, ask: bool) -> None:
        """End everything of the job here: those who end by themselves get `linger` seconds; who `ask`s lets the ranks end first."""
        left = self.until_gone(self.members, linger)
        ranks = [process for process in left if process[0] in self.rank_pids()] if ask else []
        if ranks:
            for process in ranks:
                send(process, signal.SIGTERM)
            self.until_gone(lambda: {process for process in ranks if ticks_of(process[0]) == process[1]}, STEP)
            left = self.until_gone(self.members, GRACE)
        if left:
            for process in left:
                send(process, signal.SIGKILL if LAUNCHER in command_of(process[0]) else signal.SIGTERM)
            left = self.until_gone(self.members, STEP)
        if left:
            left = self.until_gone(self.members, STEP, signal.SIGKILL)
        if not left:
            self.remove_buffers()
        self.bring_home()
        self.put("swept", left=[f"{pid} {command_of(pid)[:120]}" for pid, _ in sorted(left)])

    def members(self) -> Set[Process]:
        """Return everything of the job on this host."""
        return tagged(self.tag)

    def rank_pids(self) -> Set[Any]:
        """Return the pids that the records of the living ranks name."""
        return {facts.get("pid") for _, facts in self.records.values() if facts.get("exit_code") is None}

    def until_gone(self, members: Callable[[], Set[Process]], seconds: float, number: int = 0) -> Set[Process]:
        """Wait until nobody is left, at most so long; who is left. Two empty looks count: one may fall between a fork and an exec."""
        deadline, empty = time.monotonic() + seconds, 0
        while True:
            self.turn()
            left = members()
            empty = 0 if left else empty + 1
            if empty == 2 or (left and time.monotonic() >= deadline):
                return left
            if number:
                for process in left:
                    send(process, number)
            time.sleep(POLL)

    def bring_home(self) -> None:
        """Send everything that the job has written here."""
        while self.turn() and not self.deaf:
            pass

    def remove_buffers(self) -> None:
        """Remove what DeepSpeed leaves in memory: only that of this job's own meetings."""
        for _, facts in self.records.values():
            master = facts.get("master")
            if isinstance(master, list) and len(master) == 2 and all(isinstance(part, str) and "/" not in part for part in master):
                for path in glob.glob(BUFFERS % (os.getuid(), glob.escape(master[0]), glob.escape(master[1]))):
                    try:
                        os.unlink(path)
                    except OSError:
                        pass


def keep(order: Dict[str, Any], folder: str, tag: str) -> None:
    """In a child of ours: start the command in a session of its own, wait for its end, and write that down."""
    os.setsid()
    signal.alarm(0)
    log = open_plain(os.path.join(folder, "launcher.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDWR)
    for fd, to in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, to)  # whoever holds sshd's pipes keeps the connection open
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
    write_plain(os.path.join(folder, f"ended-{order['attempt']}"), json.dumps(facts).encode())


def stay_on(*_: object) -> None:
    """Ignore the SIGTERM by which SLURM announces the end of a step: it gives the supervisor time to end the ranks and to tidy up by us.

    A handler, for an ignored signal would be ignored by the ranks too.
    """


def give_up(*_: object) -> None:
    """Nobody has taken our output for a minute."""
    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def main() -> None:
    """Serve one connection."""
    if sys.version_info < (3, 8):
        sys.exit("Python {}.{} is too old: 3.8 is needed".format(*sys.version_info))
    signal.signal(signal.SIGALRM, give_up)
    opening = sys.stdin.buffer.readline()
    os.write(1, READY)
    try:
        agent = Agent(json.loads(opening.decode()))
        agent.run()
        agent.stay()
    except NotPossible as why:
        say("refused", text=str(why))
