"""Sample what each rank of a job uses now: its GPU's load, memory and power from NVML; for a CPU rank processor time and memory.

A thread samples the ranks of this host every few seconds. Screens read `latest`, which is replaced as a whole. A rank's GPU follows from
its record: the entry for its local rank in the CUDA_VISIBLE_DEVICES that it was started with.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dstui.base.dataclass import dataclass
from dstui.jobs.store.folder import JobFolder, read_json
from dstui.jobs.store.processes import SUPERVISES
from dstui.jobs.store.ranks import read_record
from dstui.jobs.store.records import JobStatus

if TYPE_CHECKING:
    import psutil

    from dstui.machine.live import GpuState, Live
    from dstui.machine.snapshot import Gpu

EVERY = 2.0
"""Seconds between two samples."""
STALE = 20.0
"""Seconds after which the GPU report of another host is outdated."""
ENGINE_READ = 1 << 20
"""Bytes of an engine's lines that are read for its device."""
MIB, GIB = 1 << 20, 1 << 30
USAGE = "usage.json"
"""A file in the job folder with the highest memory use of each GPU by NVML, `{"0": bytes}`, written by any session that watches the run."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of one rank. None means unknown; `why` gives the reason if everything is unknown."""

    kind: Literal["GPU", "CPU"]
    load: float | None = None
    """Percent of the GPU's time, or of one core's time (two busy cores are 200)."""
    memory: int | None = None
    """Bytes of the GPU used by all processes, or of the rank's process."""
    power: float | None = None
    """Watts."""
    device: int | None = None
    """The GPU's index in nvidia-smi."""
    why: str = ""
    host: str = ""
    """The host of the GPU, if it is not this one."""
    capacity: int | None = None
    """The total bytes of the GPU or of this host."""
    temperature: float | None = None
    """Degrees Celsius."""
    throttle: tuple[str, ...] = ()
    """Reasons for which the GPU's clocks are lowered now."""

    def __str__(self) -> str:
        return usage_text(self.kind, self.load, self.memory, self.power) if not self.why else f"{self.kind} unknown"


def usage_text(kind: str, load: float | None, memory: float | None, power: float | None) -> str:
    """Format `GPU 97 %  71.2 GB  612 W` without unknown values."""
    facts = [f"{kind} {load:.0f} %" if load is not None else kind]
    facts += [f"{memory / GIB:.1f} GB" if memory >= 1000 * MIB else f"{memory / MIB:.0f} MB"] if memory is not None else []
    facts += [f"{power:.0f} W" if power < 10_000 else f"{power / 1000:.1f} kW"] if power is not None else []
    return "  ".join(facts)


def summarise_usage(usages: Iterable[Usage]) -> str:
    """Summarise all ranks: mean load, highest memory and total power of GPUs, sums of CPUs; "" if nothing is known."""
    known = [usage for usage in usages if not usage.why]
    if not known:
        return ""
    kind = known[0].kind
    devices = list({(usage.host, usage.device): usage for usage in known}.values()) if kind == "GPU" else known
    loads = [usage.load for usage in devices if usage.load is not None]
    sizes = [usage.memory for usage in devices if usage.memory is not None]
    powers = [usage.power for usage in devices if usage.power is not None]
    load = (sum(loads) / len(loads) if kind == "GPU" else sum(loads)) if loads else None
    memory = (max(sizes) if kind == "GPU" else sum(sizes)) if sizes else None
    name = f"{len(devices)} GPUs" if kind == "GPU" and len(devices) > 1 else kind
    return usage_text(name, load, memory, sum(powers) if powers else None)


def _reported(path: Path) -> dict[int, GpuState]:
    """Return the GPUs of another host as reported by its agent; none if there is no recent report."""
    from dstui.machine.codec import decode
    from dstui.machine.live import GpuState

    found = read_json(path)
    if not isinstance(found.get("t"), float) or abs(time.time() - found["t"]) > STALE or not isinstance(found.get("gpus"), list):
        return {}
    states = [decode(GpuState, one) for one in found["gpus"] if isinstance(one, dict) and isinstance(one.get("index"), int)]
    return {state.index: state for state in states}


def _remote_in_words(hosts: Sequence[str], kind: str) -> str:
    """Describe the hosts that are not sampled; "" if there are none."""
    more = f" and {len(hosts) - 2} more" if len(hosts) > 2 else ""
    return f"{kind} use not known on {', '.join(hosts[:2])}{more}" if hosts else ""


class Sampler:
    """Samples a job until it is closed or the job has ended."""

    def __init__(
        self, folder: JobFolder, every: float = EVERY, tell: Callable[[float, Mapping[int, Usage], str], None] | None = None
    ) -> None:
        """Start sampling. `tell` is called with every sample, in the sampling thread."""
        self.latest: Mapping[int, Usage] = {}
        """By rank, for the ranks that run here."""
        self.note = ""
        """Values that are not sampled, and why, in a few words."""
        self._folder, self._every, self._tell = folder, every, tell
        launch = folder.read_launch()
        self._env: Mapping[str, str] = launch.env if launch else {}
        self._gpus: Sequence[Gpu] | None = None
        self._live: Live | None = None
        self._states: dict[int, GpuState] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._records: dict[tuple[int, int], dict[str, Any]] = {}
        self._devices: dict[tuple[int, int], str] = {}
        shown = read_json(folder.path / USAGE)  # written by an earlier session
        self._peaks: dict[str, int] = {device: most for device, most in shown.items() if type(most) is int}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()

    @property
    def active(self) -> bool:
        """Return whether it still samples."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop sampling, without waiting for a hanging driver."""
        self._closed.set()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                status = self._folder.read_status()
                self.latest = self._sample(status)
                self._note_peaks()
                if self._tell is not None:
                    self._tell(time.time(), self.latest, self.note)
                if status and status.final:
                    break
                self._closed.wait(self._every)
        finally:
            if self._live is not None:
                self._live.close()

    def _sample(self, status: JobStatus | None) -> dict[int, Usage]:
        if status is None:
            return {}
        here = os.uname().nodename
        running = sorted(number for number, rank in status.ranks.items() if rank.state == "started")
        records = {rank: self._record(rank, status.attempt) for rank in running}
        near = {rank: record for rank, record in records.items() if record.get("host") == here}
        remote = {rank: record for rank, record in records.items() if record.get("host") not in (here, None)}
        sampled = {rank: self._cpu_usage(record) if self._on_cpu else self._gpu_usage(record) for rank, record in near.items()}
        usages = {rank: usage for rank, usage in sampled.items() if usage is not None}
        usages |= {} if self._on_cpu else self._remote_usage(status, remote)
        unknown = sorted({str(remote[rank]["host"]) for rank in remote.keys() - usages.keys()})
        why = next((f"{usage.kind} unknown: {usage.why}" for usage in usages.values() if usage.why), "")
        kind = "CPU" if unknown and (self._on_cpu or self._made_on_cpu(min(remote), status.attempt)) else "GPU"
        self.note = "; ".join(filter(None, [why, _remote_in_words(unknown, kind)]))
        return usages

    def _note_peaks(self) -> None:
        """Store the highest use of each GPU in the job folder if it has grown noticeably."""
        now = {str(usage.device): usage.memory for usage in self._own if usage.device is not None and usage.memory}
        peaks = {device: max(memory, self._peaks.get(device, 0)) for device, memory in now.items()}
        if any(peak > 1.01 * self._peaks.get(device, 0) for device, peak in peaks.items()):
            self._peaks |= peaks
            with suppress(OSError):
                self._folder.write_json(self._folder.path / USAGE, self._peaks)

    @property
    def _own(self) -> list[Usage]:
        """The use of the ranks on this host."""
        return [usage for usage in self.latest.values() if not usage.host]

    def _record(self, rank: int, attempt: int) -> dict[str, Any]:
        """Return the record of the rank's shim, cached because it does not change until the rank ends."""
        if not self._records.get((attempt, rank)):
            self._records[attempt, rank] = read_record(self._folder.record(rank, attempt))
        return self._records[attempt, rank]

    @property
    def _on_cpu(self) -> bool:
        return self._env.get("DS_ACCELERATOR") == "cpu"

    def _made_on_cpu(self, rank: int, attempt: int) -> bool:
        """Return whether the rank's engine reports that it is on a CPU: the launch need not know which hosts have GPUs."""
        from dstui.jobs.engine.lines import EngineMade, read_all

        if not self._devices.get((attempt, rank)):
            made = (report.device for report in read_all(self._folder.engine(rank, attempt), ENGINE_READ) if isinstance(report, EngineMade))
            self._devices[attempt, rank] = next(made, "")
        return self._devices[attempt, rank].partition(":")[0] == "cpu"

    def _cpu_usage(self, record: Mapping[str, Any]) -> Usage | None:
        """Return the use of the rank's process, None if it has ended. Its load is that since the last sample: the first one has none."""
        import psutil

        pid = record.get("pid")
        if not isinstance(pid, int):
            return Usage("CPU", why="the rank's record is not complete")
        try:
            new = pid not in self._processes
            process = self._processes.setdefault(pid, psutil.Process(pid))
            load, memory = process.cpu_percent(None), process.memory_info().rss
            if not memory:  # it has ended, and waits for its parent to notice
                return None
            return Usage("CPU", None if new else load, memory, capacity=psutil.virtual_memory().total)
        except psutil.Error:
            return Usage("CPU", why=f"process {pid} cannot be read")

    def _gpu_usage(self, record: Mapping[str, Any]) -> Usage:
        from dstui.machine.live import Live
        from dstui.machine.snapshot import Gpu

        if self._live is None:
            self._live = Live(self._every, {name: value for name, value in os.environ.items() if name != SUPERVISES})
        self._states = self._live.poll() or self._states
        problem = self._live.problem
        if problem is not None or not self._states:
            return Usage("GPU", why=problem.reason if problem is not None else "NVML has not answered yet")
        if self._gpus is None:
            self._gpus = self._recorded_gpus() or [Gpu(index=index) for index in sorted(self._states)]
        return self._device_usage(record, self._gpus, self._states)

    def _remote_usage(self, status: JobStatus, records: Mapping[int, Mapping[str, Any]]) -> dict[int, Usage]:
        """Return the use of ranks on other hosts with a recent report."""
        from dstui.machine.snapshot import Gpu

        found = {}
        firsts = {rank.host: number for number, rank in sorted(status.ranks.items(), reverse=True)}
        reported = {host: _reported(self._folder.gpus(number)) for host, number in firsts.items() if status.hosts}
        for number, record in records.items():
            host = str(record.get("host"))
            if states := reported.get(host):
                found[number] = replace(self._device_usage(record, [Gpu(index=index) for index in sorted(states)], states), host=host)
        return found

    def _device_usage(self, record: Mapping[str, Any], gpus: Sequence[Gpu], states: Mapping[int, GpuState]) -> Usage:
        """Return the use of a rank's GPU."""
        from dstui.machine.codec import Unknown, known

        device = self._device(record, gpus)
        if isinstance(device, str):
            return Usage("GPU", why=device)
        state = states.get(device)
        if state is None or all(isinstance(fact, Unknown) for fact in (state.utilization, state.memory_used, state.power)):
            return Usage("GPU", device=device, why=f"NVML reports nothing about GPU {device}")
        return Usage(
            "GPU",
            known(state.utilization, None),
            known(state.memory_used, None),
            known(state.power, None),
            device,
            capacity=known(state.memory_total, None),
            temperature=known(state.temperature, None),
            throttle=known(state.throttle, ()),
        )

    def _recorded_gpus(self) -> Sequence[Gpu]:
        """Return the GPUs at the time of the launch: CUDA_VISIBLE_DEVICES may name their UUIDs and bus ids."""
        from dstui.machine.snapshot import Machine

        with suppress(ValueError, TypeError, KeyError, AttributeError):
            return Machine.from_json(read_json(self._folder.path / "machine.json")).gpus
        return ()

    def _device(self, record: Mapping[str, Any], gpus: Sequence[Gpu]) -> int | str:
        """Return the rank's GPU by NVML's index, or why it is unknown."""
        from dstui.machine.visible import visible_gpus

        local, value = record.get("local_rank"), record.get("gpus")
        if not isinstance(local, int):
            return "the rank's record does not say which GPU it has"
        chosen = visible_gpus(value if isinstance(value, str) else None, gpus, self._env.get("CUDA_DEVICE_ORDER")).gpus
        if len(chosen) == 1:
            return chosen[0]
        return chosen[local] if local < len(chosen) else f"CUDA_VISIBLE_DEVICES={value} names no GPU for local rank {local}"
