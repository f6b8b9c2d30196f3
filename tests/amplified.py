"""Files that are small on disk but expensive to read: sparse files, decompression bombs, false size claims and device files.

tests/test_readers.py and tests/long run every command that reads such a file, with a limit on memory and time.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SPARSE = 3 << 30
PLAN = "version: 1\njob: {{script: {script}}}\ncluster: {{hostfile: {hosts}, cpu_ranks: 1}}\nmodel: {{source: {model}}}\ndeepspeed: {{}}\n"


def sparse(path: Path, head: bytes = b"") -> None:
    """Write a sparse file of 3 GB that only allocates its head."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    os.truncate(path, SPARSE)


def zip_end(size: int, *, zip64: bool = False) -> bytes:
    """Return the end of a zip file whose last record claims a directory of `size` bytes."""
    end = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF if zip64 else size, 0xFFFFFFFF if zip64 else 0, 0)
    if not zip64:
        return end
    record = b"PK\x06\x06" + struct.pack("<Q2H2L4Q", 44, 45, 45, 0, 0, 1, 1, size, 0)
    return record + b"PK\x06\x07" + struct.pack("<LQL", 0, SPARSE - len(record) - 20 - len(end), 1) + end


def sparse_zip(path: Path, *, zip64: bool = False) -> None:
    """Write a sparse file with the first and last bytes of a zip file."""
    sparse(path, b"PK\x03\x04")
    end = zip_end(SPARSE - 100, zip64=zip64)
    with path.open("r+b") as file:
        file.seek(SPARSE - len(end))
        file.write(end)


def torch_file(path: Path, pickle: bytes, packed: int = zipfile.ZIP_DEFLATED) -> None:
    """Write a file in the format of torch.save, compressed by `packed`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", packed) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/version", "3")


MODEL_STATES = "checkpoint/global_step1/mp_rank_00_model_states.pt"
PICKLES: dict[str, tuple[bytes, bytes, int, bytes]] = {
    "dictionaries": (b"\x80\x02", b"}", 31 << 20, b"."),
    "lists": (b"\x80\x02", b"]", 31 << 20, b"."),
    "memo": (b"\x80\x04}", b"\x94", 31 << 20, b"."),
    "marks": (b"\x80\x02", b"(", 31 << 20, b"."),
    "duplicates": (b"\x80\x02]", b"2", 31 << 20, b"."),
    "a long name": (b"\x80\x02c", b"a", 30 << 20, b"\nb\n."),
    "an index of the memo": (b"\x80\x02}r", b"\xff\xff\xff\x7f", 1, b"."),
}


@dataclass(frozen=True)
class Amplified:
    """A file and the commands that read it, run in its folder."""

    name: str
    write: Callable[[Path], None]
    commands: tuple[tuple[str, ...], ...]
    quick: bool = False
    """True if the quick suite's sample includes it."""


def text_readers() -> Iterator[Amplified]:
    """Yield text files: sparse files and device files."""
    readers = {
        "check": ("check", "{}"),
        "render": ("render", "{}"),
        "import": ("import", "{}"),
        "forecast": ("forecast", "{}"),
        "explain": ("docs", "{}"),
        "machine": ("machine", "--machine", "{}"),
        "hostfile": ("machine", "--hosts", "{}"),
        "headless": ("--headless", "{}", "--dry-run"),
        "for a machine": ("check", "quickstart", "--machine", "{}"),
    }
    for name, words in readers.items():
        command = tuple(word.format("big") for word in words)
        yield Amplified(f"{name}, sparse", lambda folder: sparse(folder / "big"), (command,), name == "check")
        for special in ("/proc/kmsg", "/dev/zero"):
            yield Amplified(f"{name}, {special}", lambda _: None, (tuple(word.format(special) for word in words),), special == "/proc/kmsg")


def named_in_plans() -> Iterator[Amplified]:
    """Yield Plans whose script, hostfile or model is such a file."""
    commands = (("check", "p"), ("render", "p"), ("forecast", "p"), ("--headless", "p", "--dry-run"), ("doctor", "p"))
    for what in ("script", "hosts", "model"):
        for value in ("/proc/kmsg", "/dev/zero", "big", "model"):
            plan = PLAN.format(**{"script": "t.py", "hosts": "null", "model": "null", what: value})

            def write(folder: Path, plan: str = plan) -> None:
                (folder / "p").write_text(plan)
                (folder / "t.py").write_text("")
                sparse(folder / "big")
                sparse(folder / "model" / "config.json")
                sparse(folder / "model" / "model.safetensors.index.json")

            yield Amplified(f"{what}: {value}", write, commands, value == "/proc/kmsg")


def weights() -> Iterator[Amplified]:
    """Yield safetensors files with bad headers."""
    headers = {
        "sparse": b"",
        "a header of 3 GB": struct.pack("<Q", SPARSE - 8),
        "a header of zeros": struct.pack("<Q", 8 << 20),
        "lists": struct.pack("<Q", 8 << 20) + b'{"a":[' + b"[]," * ((8 << 20) // 3 - 10),
    }
    for name, head in headers.items():

        def write(folder: Path, head: bytes = head) -> None:
            (folder / "p").write_text(PLAN.format(script="t.py", hosts="null", model="m.safetensors"))
            sparse(folder / "m.safetensors", head)

        yield Amplified(f"safetensors, {name}", write, (("forecast", "p"),), name == "lists")


def written(head: bytes, repeated: bytes, times: int, end: bytes) -> bytes:
    """Return a pickle. Every test process that imports this module would otherwise keep 200 MB of them."""
    return head + repeated * times + end


def checkpoints() -> Iterator[Amplified]:
    """Yield checkpoints in the format of torch.save."""
    look = (("checkpoint", "checkpoint/global_step1"),)
    yield Amplified("a sparse zip", lambda folder: sparse_zip_in(folder / MODEL_STATES), look, quick=True)
    yield Amplified("a sparse zip64", lambda folder: sparse_zip_in(folder / MODEL_STATES, zip64=True), look, quick=True)
    yield Amplified("a sparse file of torch", lambda folder: sparse(folder / MODEL_STATES), look)
    yield Amplified("latest", lambda folder: sparse(folder / "checkpoint" / "latest"), (("checkpoint", "checkpoint"),))
    for name, parts in PICKLES.items():
        yield Amplified(
            f"a pickle of {name}",
            lambda folder, p=parts: torch_file(folder / MODEL_STATES, written(*p)),
            look,
            quick=name == "dictionaries",
        )
    lzma = Amplified(
        "a pickle packed with lzma",
        lambda folder: torch_file(folder / MODEL_STATES, b"\0" * (30 << 20), zipfile.ZIP_LZMA),
        look,
        quick=True,
    )
    yield lzma


def sparse_zip_in(path: Path, *, zip64: bool = False) -> None:
    """Create the folder and write a sparse zip file there."""
    path.parent.mkdir(parents=True)
    sparse_zip(path, zip64=zip64)


def logs() -> Iterator[Amplified]:
    """Yield logs for `dstui diagnose`."""
    look = (("diagnose", "big.log"),)

    def expanding(folder: Path) -> None:
        (folder / "big.log").write_bytes(gzip.compress(b"\0" * (64 << 20), 9) * 20)

    def padded(folder: Path) -> None:
        sparse(folder / "big.log", gzip.compress(b"a line\n"))

    def packed(folder: Path) -> None:
        with zipfile.ZipFile(folder / "big.log", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("a.log", b"\0" * (1 << 30))

    yield Amplified("a sparse log", lambda folder: sparse(folder / "big.log", b"a line\n"), look)
    yield Amplified("a sparse log in UTF-16", lambda folder: sparse(folder / "big.log", "\ufeffa line\n".encode("utf-16-le")), look)
    yield Amplified("a zip of logs", lambda folder: sparse_zip(folder / "big.log"), look, quick=True)
    yield Amplified("a zip64 of logs", lambda folder: sparse_zip(folder / "big.log", zip64=True), look, quick=True)
    yield Amplified("a gzip that expands", expanding, look)
    yield Amplified("a gzip with zeros behind it", padded, look, quick=True)
    yield Amplified("a zip with lzma", packed, look)


RECORDS = ("status.json", "launch.json", "events.jsonl", "plan.yaml", "machine.json", "logs/rank_0.log", "ranks/rank_0.json", "stop.json")


def jobs() -> Iterator[Amplified]:
    """Yield job folders in which one file is sparse or holds millions of empty lists."""
    commands = (("runs", "--in", "."), ("logs", "run"), ("diagnose", "run"), ("bundle", "run"), ("stop", "run"), ("stacks", "run"))
    for name in RECORDS:
        for kind in ("sparse", "lists"):

            def write(folder: Path, name: str = name, kind: str = kind) -> None:
                for part in ("logs", "ranks"):
                    (folder / "run" / part).mkdir(parents=True, exist_ok=True)
                status = {"state": "failed", "exit_code": 1, "ranks": {"0": {"host": "h", "pid": 1, "state": "ended", "exit_code": 1}}}
                (folder / "run/status.json").write_text(json.dumps(status))
                (folder / "run/logs/rank_0.log").write_text("a line\n")
                if kind == "lists":
                    (folder / "run" / name).write_bytes(b'{"ranks": [' + b"[]," * 5_000_000 + b"[]]}")
                else:
                    (folder / "run" / name).write_bytes(b"")
                    os.truncate(folder / "run" / name, SPARSE)

            yield Amplified(
                f"{name} of a job, {kind}", write, commands, (name, kind) in {("status.json", "lists"), ("events.jsonl", "sparse")}
            )


AMPLIFIED = [one for make in (text_readers, named_in_plans, weights, checkpoints, logs, jobs) for one in make()]
