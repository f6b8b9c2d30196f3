"""Convert a checkpoint to full weights, or to a universal one, with DeepSpeed's own tools in a child process; and list what it contains.

The child loads the pickles like untrusted files (dstui/reference/convert_checkpoint.py): nothing that they name is executed. It writes to a
temporary folder beside the target, which is renamed when it is complete.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_there, reason, write_atomic
from dstui.base.text import counted, sanitise
from dstui.checkpoints.checkpoint import Checkpoint

Kind = Literal["fp32", "universal"]
SAFE = Path(__file__).parent.parent / "reference" / "convert_checkpoint.py"
TEMPORARY = ".dstui-"
"""Prefix of the folder of an unfinished conversion."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The options of a conversion."""

    kind: Kind
    shard: str = "5GB"
    """The largest file of full weights."""
    trusted: bool = False
    """True if its pickles may execute code."""


@dataclass(frozen=True, slots=True)
class ConversionCost:
    """Required and available bytes of a conversion."""

    memory: int
    memory_free: int
    disk: int
    disk_free: int

    @property
    def too_much(self) -> str:
        """Return why there is not enough space or memory; "" if there is."""
        if self.disk > self.disk_free:
            return f"the disk has {format_gib(self.disk_free)} free, and {format_gib(self.disk)} are written"
        if self.memory > self.memory_free:
            return f"{format_gib(self.memory_free)} of memory are free, and about {format_gib(self.memory)} are needed"
        return ""


def format_gib(size: float) -> str:
    """Format a size in GiB, MiB or KiB."""
    power, unit = next(((n, u) for n, u in ((30, "GiB"), (20, "MiB")) if size >= 2**n), (10, "KiB"))
    return f"{size / 2**power:.1f} {unit}"


def estimate_cost(kind: Kind, checkpoint: Checkpoint, target: Path) -> ConversionCost:
    """Estimate the bytes of disk and memory.

    float32 weights: 4 bytes per parameter on disk, twice that in memory; universal: three times on disk.
    """
    whole = 4 * (checkpoint.parameters or checkpoint.size // 12)
    folder = next(parent for parent in (target.absolute(), *target.absolute().parents) if parent.is_dir())
    disk = whole if kind == "fp32" else 3 * whole
    return ConversionCost(2 * whole, psutil.virtual_memory().available, disk, shutil.disk_usage(folder).free)


def convert(
    conversion: Conversion,
    checkpoint: Checkpoint,
    target: Path,
    progress: Callable[[str, int], None] = lambda _line, _bytes: None,
) -> None:
    """Write the converted checkpoint to a new folder. Raises FileProblem; after a failure nothing is left.

    `progress` is called with DeepSpeed's output and the number of written bytes.
    """
    target = target.absolute()
    if is_there(target) and (not target.is_dir() or any(target.iterdir())):
        raise FileProblem(f"{target} exists: name a new folder, nothing is replaced")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=target.parent))
    except OSError as error:
        raise FileProblem(f"{target}: {reason(error)}") from None
    try:
        made = work / target.name
        _run(_command(conversion, checkpoint, made), work, progress)
        if not made.is_dir() or not any(made.iterdir()):
            raise FileProblem(f"{target}: DeepSpeed's tool ended well and wrote nothing")
        if target.is_dir():
            target.rmdir()
        made.replace(target)
        if conversion.kind == "universal":
            write_atomic(target.parent / "latest_universal", target.name, replace=True)
    except OSError as error:
        raise FileProblem(f"{target}: {reason(error)}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _command(conversion: Conversion, checkpoint: Checkpoint, made: Path) -> list[str]:
    """Return the command of the tool; with trusted pickles, as DeepSpeed runs it."""
    if conversion.kind == "universal":
        folders = ["--input_folder", str(checkpoint.path.absolute()), "--output_folder", str(made)]
        words = ["deepspeed.checkpoint.ds_to_universal", *folders, "--inject_missing_state"]
    else:
        options = ["--tag", checkpoint.tag, "--max_shard_size", conversion.shard, "--safe_serialization"]
        words = ["deepspeed.utils.zero_to_fp32", str(checkpoint.folder.absolute()), str(made), *options]
    return [sys.executable, "-m", *words] if conversion.trusted else [sys.executable, str(SAFE), *words]


def _run(command: list[str], work: Path, progress: Callable[[str, int], None]) -> None:
    """Run DeepSpeed's tool, outside of folders that could contain a module of its name, and end it if this process ends."""
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output: deque[bytes] = deque(maxlen=16)
    reader = threading.Thread(target=_read, args=(child, output), daemon=True)
    reader.start()
    try:
        while child.poll() is None:
            time.sleep(0.1)
            progress(_last_line(output), _written(work))
        reader.join(5)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode:
        raise FileProblem(f"DeepSpeed's tool ended with {child.returncode}: {_last_line(output)}")


def _read(child: subprocess.Popen[bytes], output: deque[bytes]) -> None:
    """Keep the end of the child's output in memory, since the disk may be full."""
    assert child.stdout is not None
    while chunk := os.read(child.stdout.fileno(), 4096):
        output.append(chunk)


def _last_line(output: Iterable[bytes]) -> str:
    lines = b"".join(list(output)).decode(errors="replace").splitlines()
    return sanitise(next((line for line in reversed(lines) if line.strip()), ""))


def _written(folder: Path) -> int:
    return sum(_size(path) for path in folder.rglob("*"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # it was renamed in the meantime
        return 0


class CheckpointFact(NamedTuple):
    """One fact with its label. `severity`: ok, error, or empty if neutral."""

    name: str
    text: str
    severity: str = ""


def describe_checkpoint(found: Checkpoint) -> Iterator[CheckpointFact]:
    """Yield the facts of a checkpoint. They may contain text of its files: sanitise it before it is shown."""
    ranks = counted(found.world_size, "rank") if found.world_size else "an unknown number of ranks"
    parallel = f" x {found.model_parallel} model-parallel" if (found.model_parallel or 1) > 1 else ""
    frozen = f", {found.trainable:,} of them trained" if found.trainable and found.trainable != found.parameters else ""
    version = f", DeepSpeed {found.deepspeed}" if found.deepspeed else ""
    yield CheckpointFact("step", str(found.step) if found.step is not None else "unknown")
    yield CheckpointFact("written by", f"{ranks}{parallel}, ZeRO stage {found.stage if found.stage is not None else 'unknown'}{version}")
    precision = f", {found.precision}" if found.precision else ""
    yield CheckpointFact("parameters", f"{f'{found.parameters:,}' if found.parameters else 'unknown'}{frozen}{precision}")
    yield CheckpointFact("on disk", f"{format_gib(found.size)} in {counted(found.files, 'file')}")
    if found.universal:
        yield CheckpointFact("universal", "any number of ranks can load it, with checkpoint.load_universal: true")
    if found.client_state:
        yield CheckpointFact("with it", f"{', '.join(found.client_state[:12])} (client state)")
    yield from (CheckpointFact("NOT WHOLE", problem, "error") for problem in found.problems)
    if not found.problems:
        yield CheckpointFact("whole", "every rank's file is there and can be read", "ok")
    if found.strange:
        yield CheckpointFact("BEWARE", f"loading it would run {', '.join(found.strange[:5])}, which no training run writes", "error")


def conversion_problem(found: Checkpoint, *, trusted: bool = False) -> str:
    """Return why the checkpoint cannot be converted; "" if it can. `trusted`: its pickles may run code."""
    if found.problems:
        return f"{found.path} is not complete, and nothing was written: {'; '.join(found.problems)}"
    if found.strange and not trusted:
        return f"loading it would run {', '.join(found.strange[:5])}, which no training run writes"
    if found.universal:
        return "a universal checkpoint already has whole weights"
    return "" if found.stage else "at stage 0 the weights are already whole, under `module`"
