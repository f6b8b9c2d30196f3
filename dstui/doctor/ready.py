"""Print, as JSON lines, what a job needs of a host and a snapshot lacks: folders, names, ports, caches, imports. A standalone program.

It runs under the interpreter of the job (`PYTHON ready.py`), here or sent over ssh: plain Python 3.8 without imports of dstui. ARGUMENT, a
JSON object, comes on standard input, because it may contain the password of a proxy and command lines are visible to all users. The program
writes one small file into the job's folder and removes it, and listens on one port for a moment.

ARGUMENT: {"python": str, "script": str | null, "model": str | null, "hub": str | null, "folders": [str], "token": str | null, "names":
[str], "listen": [port, peers] | null, "connect": [host, port] | null, "seconds": float, "imports": bool, "env": {name: value}, "modules":
[str], "programs": [str], "options": [str]}. `options` are those of the interpreter.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

SETTLED, STALE_SECONDS = 2, 600
"""A lock of torch's extension builder that is older than the first value, and held by no process here, belongs to a killed build. On a
network file system another host may hold it, so the second value applies."""
IMPORT_SECONDS = 90
"""Half of it is an import of torch from a cold network file system."""
POINTER_BYTES = 1024
"""A pointer file of git-lfs has about 130 bytes; weights have more than this."""
MAX_SCRIPT, MAX_INDEX = 1 << 20, 16 << 20
"""Bytes of a training script, and of the index of a model's weights, that are read."""
HUB_SECONDS = 5.0
"""Seconds for the hub to answer."""
LAUNCHERS = re.compile(r"deepspeed\.launcher\.\w+|torch\.distributed\.run|torchrun|accelerate\.commands\.launch")
NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "fuse.sshfs", "ceph", "wekafs")
IMPORTS = """\
# asks DeepSpeed
import gc, json
gc.disable()  # an import makes no garbage, and looking for some takes a fifth of it
import torch, deepspeed
from deepspeed.accelerator import get_accelerator
here = get_accelerator()
cuda = torch.cuda.is_available()
arches = torch.cuda.get_arch_list() if cuda else []
found = {"torch": torch.__version__, "deepspeed": deepspeed.__version__, "gpus": torch.cuda.device_count() if cuda else 0, "arches": arches}
found["types"] = {"fp16": bool(here.is_fp16_supported()), "bf16": bool(here.is_bf16_supported())}
print("\\n" + json.dumps(found))
"""


def emit(kind: str, value: Any) -> None:
    """Print one fact, unbuffered."""
    sys.stdout.write(json.dumps([kind, value]) + "\n")
    sys.stdout.flush()


def folder(path: str) -> dict[str, Any]:
    """Return whether a folder exists and is writable, the time of a small synced write, its free space and its file system."""
    if not Path(path).is_dir():
        return {"exists": False}
    found: dict[str, Any] = {"exists": True, "filesystem": filesystem(path)}
    free = os.statvfs(path)
    found["free"] = free.f_bavail * free.f_frsize
    found["inodes"] = free.f_favail if free.f_files else None
    try:
        began = time.monotonic()
        with tempfile.NamedTemporaryFile(dir=path, prefix=".dstui-doctor-") as file:
            file.write(b"dstui was here for a moment\n")
            file.flush()
            os.fsync(file.fileno())
        found["write_seconds"] = time.monotonic() - began
    except OSError as error:
        found["problem"] = error.strerror or str(error)
    return found


def filesystem(path: str) -> str:
    """Return the type of the file system that holds a path."""
    real, best = os.path.realpath(path), ("", "unknown")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace("\\040", " ")
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best[0]):
            best = (mount, right.split()[0])
    return best[1]


def head(path: Any, most: int) -> bytes:
    """Read a regular file of at most `most` bytes without blocking. Raises OSError for other files."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - nothing blocks on a pipe
        data = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    if data is None or len(data) > most:
        raise OSError(errno.EFBIG if data else errno.EINVAL, "too large for a text" if data else "not a regular file")
    return data


def script(path: str) -> dict[str, Any]:
    """Return whether the script exists, its hash, and whether Python can compile it."""
    try:
        text = head(path, MAX_SCRIPT)
    except OSError as error:
        return {"problem": error.strerror or str(error)}
    try:
        compile(text, path, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return {"problem": f"line {line}: {getattr(error, 'msg', error)}" if line else str(error), "compiles": False}
    return {"hash": hashlib.sha256(text).hexdigest()[:16], "compiles": True}


def model(path: str) -> dict[str, Any]:
    """Return whether a model's folder is complete: its config.json and every weight file of its index, none of them a git-lfs pointer."""
    place = Path(path)
    if place.is_file():
        return {"files": 0}
    if not place.is_dir():
        return {"problem": "there is no such folder"}
    if not (place / "config.json").is_file():
        return {"problem": "it has no config.json"}
    names = set()
    try:
        for index in place.glob("*.index.json"):
            names |= set(json.loads(head(index, MAX_INDEX)).get("weight_map", {}).values())
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        return {"problem": "the index of its weights cannot be read"}
    for name in sorted(names):
        if not (place / name).is_file():
            return {"problem": f"{name} is missing, which its index names"}
        if (place / name).stat().st_size < POINTER_BYTES:
            return {"problem": f"{name} is only a pointer of git-lfs"}
    return {"files": len(names)}


def hub(name: str) -> dict[str, Any]:
    """Return whether a model is in this host's Hugging Face cache, else whether the hub has it. No token is sent."""
    home = Path(os.environ.get("HF_HOME") or cache_folder() / "huggingface")
    kept = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}" / "snapshots"
    if any(kept.glob("*/*")):
        return {"cached": True}
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return {"offline": True}
    found: dict[str, Any] = {"endpoint": os.environ.get("HF_ENDPOINT") or "https://huggingface.co"}
    found["token"] = bool(os.environ.get("HF_TOKEN")) or (home / "token").is_file()
    asking = threading.Thread(
        target=ask, args=(f"{found['endpoint']}/{urllib.parse.quote(name)}/resolve/main/config.json", found), daemon=True
    )
    asking.start()
    asking.join(HUB_SECONDS)  # a name server may take longer than any socket time-out
    return found if "status" in found or "problem" in found else {**found, "problem": f"no answer within {HUB_SECONDS:.0f} s"}


def ask(url: str, found: dict[str, Any]) -> None:
    """Record the HTTP status of a page, or why there is none. A proxy of the environment is used."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=HUB_SECONDS) as answer:
            found["status"] = answer.status
    except urllib.error.HTTPError as error:
        found["status"] = error.code
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        found["problem"] = getattr(reason, "strerror", None) or str(reason)


def keys() -> list[str]:
    """Return the trackers for which this user has a key on this host, never the keys."""
    server = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() may raise
    netrc = Path(os.environ.get("NETRC") or home / ".netrc")
    found = []
    if os.environ.get("WANDB_API_KEY") or (netrc.is_file() and server in netrc.read_text(errors="replace").split()):
        found.append("wandb")
    if os.environ.get("COMET_API_KEY") or (home / ".comet.config").is_file():
        found.append("comet")
    return found


def addresses(names: list[str]) -> dict[str, Any]:
    """Return name -> the IPv4 addresses that this host resolves it to, including its own name."""
    return {"": socket.gethostname(), **{name: resolved(name) for name in names}}


def identity() -> str:
    """Return what identifies this host whatever its name: its boot id, and the container's namespaces."""
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts += [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")]  # noqa: PTH115 - Python 3.8 has no Path.readlink
    return " ".join(parts) if len(parts) == 3 else ""


def resolved(name: str) -> list[str]:
    """Return the IPv4 addresses of a name; empty if it does not resolve."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)})
    except OSError:
        return []


def kernel_log() -> str | None:
    """Return the kernel's log since boot; None if this user may not read it."""
    try:
        device = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    records = []
    try:
        while True:
            records.append(os.read(device, 1 << 16))
    except OSError:  # nothing more at the moment
        return b"".join(records).decode(errors="replace")
    finally:
        os.close(device)


def xids(log: str | None) -> dict[str, int] | None:
    """Return how often NVIDIA's driver reported each error number; None if the log may not be read."""
    if log is None:
        return None
    found: dict[str, int] = {}
    for number in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", log):
        found[number] = found.get(number, 0) + 1
    return found


def extensions() -> dict[str, Any]:
    """Return torch's folder of compiled ops: its path, its file system, and locks that no running build holds."""
    place = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache_folder() / "torch_extensions")
    now = time.time()
    above = next(folder for folder in (place, *place.parents) if folder.is_dir())
    network = filesystem(str(above)) in NETWORK
    since = now - (STALE_SECONDS if network else SETTLED)
    old = {os.path.realpath(lock): str(lock) for lock in place.rglob("lock") if lock.stat().st_mtime < since}
    busy = held(old)
    return {"folder": str(place), "network": network, "stale": sorted(lock for real, lock in old.items() if real not in busy)}


def held(paths: Iterable[str]) -> set[str]:
    """Return those of these files that a process has open, as far as this user may see."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*") if paths else ():
        with suppress(OSError):
            found.add(os.readlink(str(link)))  # noqa: PTH115 - Python 3.8 has no Path.readlink
    return found.intersection(paths)


def cache_folder() -> Path:
    """Return the cache folder of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - Path.home() may raise


def imports(python: list[str]) -> dict[str, Any]:
    """Import torch and deepspeed with the job's interpreter and return its output. Takes seconds."""
    try:
        ran = subprocess.run([*python, "-c", IMPORTS], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return {"problem": f"it took longer than {IMPORT_SECONDS} s"}
    except OSError as error:
        return {"problem": f"{python[0]}: {error.strerror}"}
    if ran.returncode:
        words = ran.stderr.decode(errors="replace").strip().splitlines()
        return {"problem": words[-1] if words else f"it ended with status {ran.returncode}"}
    found: dict[str, Any] = json.loads(ran.stdout.decode().strip().splitlines()[-1])
    return found


def modules(python: list[str], names: list[str]) -> dict[str, bool]:
    """Return which of these modules the job's interpreter finds, without importing them."""
    code = "import importlib.util, json, sys; print(json.dumps({n: importlib.util.find_spec(n) is not None for n in sys.argv[1:]}))"
    try:
        ran = subprocess.run(
            [*python, "-c", code, *names], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=IMPORT_SECONDS
        )
        found: dict[str, bool] = json.loads(ran.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return found


def leftovers() -> list[dict[str, Any]]:
    """Return this user's launchers and dstui job processes on this host: pid, age in seconds, description."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            if process.stat().st_uid != os.getuid():
                continue
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            launcher = LAUNCHERS.search(words)
            if launcher or b"\0DSTUI_JOB=" in b"\0" + (process / "environ").read_bytes():
                what = launcher[0] if launcher else words[:60].strip()
                found.append({"pid": int(process.name), "age": max(0.0, time.time() - process.stat().st_mtime), "what": what})
    return sorted(found, key=lambda each: -each["age"])


def holder(port: int) -> str:
    """Return pid and command of the listener on a TCP port, as far as this user may see."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in (table.read_text().splitlines() if table.exists() else [])[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) == port and fields[3] == "0A":
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        if inodes & targets(process / "fd"):
            return f"pid {process.name} ({(process / 'comm').read_text().strip()})"
    return "another user's process" if inodes else "a connection that is closing"


def targets(folder: Path) -> set[str]:
    """Return the targets of the links in a folder; empty if they are gone or unreadable."""
    try:
        return {os.readlink(link) for link in folder.iterdir()}  # noqa: PTH115 - Path.readlink came with 3.9
    except OSError:
        return set()


def listen(port: int, peers: int, seconds: float) -> dict[str, Any]:
    """Bind the port that rank 0 will need, and accept connections of the other hosts for `seconds`."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
            server.listen(peers + 1)
        except OSError as error:
            return {"problem": error.strerror, "holder": holder(port)}
        ends, came = time.monotonic() + seconds, 0
        while came < peers and time.monotonic() < ends:
            server.settimeout(max(0.05, ends - time.monotonic()))
            try:
                server.accept()[0].close()
                came += 1
            except OSError:
                break
        return {"peers": came}


def connect(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Connect to the port on rank 0's host, retrying for `seconds`, since it may not listen yet."""
    ends = time.monotonic() + seconds
    problem = attempt(host, port, ends)
    while problem and time.monotonic() < ends:
        time.sleep(0.1)
        problem = attempt(host, port, ends)
    return {"reached": not problem, "problem": problem}


def attempt(host: str, port: int, ends: float) -> str:
    """Try to connect once. Return why it failed, or ""."""
    try:
        socket.create_connection((host, port), timeout=max(0.1, ends - time.monotonic())).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def talk(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Run the part that waits for other hosts."""
    seconds = wanted["seconds"]
    if wanted.get("listen"):
        port, peers = wanted["listen"]
        found["listen"] = listen(port, peers, seconds)
    if wanted.get("connect"):
        host, port = wanted["connect"]
        found["connect"] = connect(host, port, seconds)


def report(wanted: dict[str, Any]) -> None:
    """Print all requested facts."""
    os.environ.update(wanted["env"])
    found: dict[str, Any] = {}
    waiting = threading.Thread(target=talk, args=(wanted, found))
    waiting.start()
    python = wanted["python"]
    emit("ready", {"python_found": os.access(python, os.X_OK) if "/" in python else True})
    emit("ready", {"folders": {path: folder(path) for path in wanted["folders"]}, "extensions": extensions(), "xids": xids(kernel_log())})
    emit("ready", {"identity": identity()})
    emit("ready", {"names": addresses(wanted["names"]), "script": script(wanted["script"]) if wanted["script"] else None})
    if wanted["model"]:
        emit("ready", {"model": model(wanted["model"])})
    if wanted["hub"]:
        emit("ready", {"hub": hub(wanted["hub"])})
    emit("ready", {"keys": keys(), "leftovers": leftovers()})
    emit("ready", {"programs": {name: shutil.which(name) for name in wanted.get("programs", ())}})
    if wanted.get("modules"):
        emit("ready", {"modules": modules([python, *wanted["options"]], wanted["modules"])})
    if wanted["token"]:
        emit("ready", {"shared": Path(wanted["token"]).exists()})
    if wanted["imports"]:
        emit("ready", {"imports": imports([python, *wanted["options"]])})
    waiting.join()
    emit("ready", {**found, "clock": time.time()})


if __name__ == "__main__":
    report(json.load(sys.stdin))
    emit("done", None)
