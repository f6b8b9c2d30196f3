"""Import an accelerate YAML: DeepSpeed's keys go under `deepspeed:`, machines under `cluster:`, the rest under `accelerate:`.

Rendering the Plan gives an equivalent file as accelerate loads it (`dstui.render.accelerate` is the inverse).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from dstui.adopt.accelerate import read_accelerate, repaired
from dstui.adopt.dsconfig import ConfigError, read_dsconfig
from dstui.adopt.new_plan import Imported, doubts, plan_text
from dstui.base.dataclass import dataclass
from dstui.base.limits import MAX_SLOTS
from dstui.plan.accelerate_keys import FILE, PARALLELISM, PLUGIN, SECTION, TOP
from dstui.plan.hostfile import host_problem
from dstui.plan.kinds import is_integer

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Given:
    """The command's words beside the YAML."""

    job: Mapping[str, Any] = field(default_factory=dict)
    """script or module, and args"""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Options of `accelerate launch` under the names of the YAML's keys, which they override."""
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the launcher for which the YAML has no key."""
    parallelism: Mapping[str, Any] = field(default_factory=dict)
    """Options that are keys of the section parallelism_config."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the model from the script's options."""


def plan_of_accelerate(
    text: str, source: str, given: Given | None = None, read_named: Callable[[str], str | None] = lambda _name: None
) -> Imported:
    """Return the Plan of an accelerate YAML. `read_named` returns the text of a ds_config.json, or None. Raises ConfigError."""
    text, notes = repaired(text)
    given = given or Given()
    rest = {name: _plain(value) for name, value in read_accelerate(text).config.items() if value is not None}
    inner = rest.pop(SECTION, None)
    if inner is not None and not isinstance(inner, Mapping):
        raise ConfigError(f"{SECTION} has no keys: it is a section, such as {SECTION}: {{zero_stage: 2}}")
    work = _Adoption(rest, dict(inner or {}), [*given.notes, *notes])
    work.flags(given.flags)
    if given.parallelism:
        section = work.top.get(PARALLELISM)
        work.top[PARALLELISM] = {**(section if isinstance(section, Mapping) else {}), **given.parallelism}
    work.old_names()
    deepspeed = work.deepspeed(read_named)
    cluster = {**work.cluster(), **({"env": dict(given.env)} if given.env else {}), **given.cluster}
    accelerate = {**work.top, **({SECTION: work.inner} if work.inner or inner is not None else {})}
    job = {**given.job, "integration": "accelerate", "optimizer": None if "optimizer" in deepspeed else "script"}
    job = {name: value for name, value in job.items() if value}
    sections = {"job": job, "model": given.model, "cluster": cluster, "accelerate": accelerate, "deepspeed": deepspeed}
    return Imported(plan_text(source, sections, work.notes), work.notes)


class _Adoption:
    """Moves the keys of a file to their places in the Plan; holds those that are left."""

    def __init__(self, top: dict[str, Any], inner: dict[str, Any], notes: list[str]) -> None:
        self.top, self.inner, self.notes = top, inner, notes
        self.used = self.top.get("distributed_type") == "DEEPSPEED"
        self.given = frozenset[str]()
        """Keys from the command line. accelerate accepts them there even if it refuses them in the file."""
        self.note_unknown()

    def note_unknown(self) -> None:
        """Note the keys that accelerate would refuse or ignore. They are kept."""
        for name in self.top:
            if name not in TOP:
                self.notes.append(f"{name}: accelerate has no such key at the top level; kept under accelerate:")
        for name in self.inner:
            if name not in PLUGIN:
                self.notes.append(f"{SECTION}.{name}: accelerate ignores it, and so does this Plan; kept under accelerate:")
        if not self.used:
            kind = self.top.get("distributed_type")
            self.notes.append(f"distributed_type is {kind}: accelerate would train without DeepSpeed, this Plan trains with it")

    def flags(self, given: Mapping[str, Any]) -> None:
        """Let options of the command line override the file."""
        self.given = frozenset(given)
        for name, value in given.items():
            section = self.inner if name in PLUGIN else self.top
            if name in section and section[name] != value:
                self.notes.append(f"--{name} {value} on the command line replaces {section[name]} in the file")
            section[name] = value

    def old_names(self) -> None:
        """Convert `fp16: true` of old files."""
        old = self.top.pop("fp16", None)
        if old and self.top.get("mixed_precision") is None:
            self.top["mixed_precision"] = "fp16"
            self.notes.append("fp16: the old name of mixed_precision: fp16")
        if self.top.get("mixed_precision") is False:
            self.top["mixed_precision"] = "no"
            self.notes.append("mixed_precision: no without quotes is false in YAML, and accelerate launch fails on it; it is 'no' here")

    def deepspeed(self, read_named: Callable[[str], str | None]) -> dict[str, Any]:
        """Return DeepSpeed's configuration: the named file, or what accelerate derives from the plugin's keys."""
        if isinstance(self.inner.get(FILE), str) and self.inner[FILE] != "none":
            return self.named(self.inner[FILE], read_named(self.inner[FILE]))
        config: dict[str, Any] = {"train_batch_size": AUTO, "train_micro_batch_size_per_gpu": AUTO}
        take = self.inner.pop if self.used else self.inner.get
        for key in PLUGIN.values():
            if key.path and (key.name not in self.inner or not _suits(self.inner[key.name], key.kind)):
                if key.name in self.inner:
                    self.notes.append(f"{SECTION}.{key.name}: {self.inner[key.name]!r} is not a valid value; kept under accelerate:")
                if key.name in ("zero_stage", "gradient_accumulation_steps", "gradient_clipping"):
                    _put(config, key.path, AUTO)
            elif key.path:
                _put(config, key.path, take(key.name))
        self.precision(config)
        return config

    def precision(self, config: dict[str, Any]) -> None:
        """Convert the mixed precision to DeepSpeed's keys. A default `no` is left out, an explicit one is kept."""
        wanted = self.top.get("mixed_precision")
        if wanted in ("bf16", "fp16") and self.used:
            config[self.top.pop("mixed_precision")] = {"enabled": True, **({"auto_cast": True} if wanted == "fp16" else {})}

    def named(self, name: str, text: str | None) -> dict[str, Any]:
        """Return the configuration of a ds_config.json, and note the keys beside it that accelerate refuses."""
        for key in PLUGIN.values():
            if key.name in self.inner and not key.beside_file and key.name not in self.given:
                self.notes.append(
                    f"{SECTION}.{key.name} beside {FILE}: accelerate refuses the file for it; here it fills {key.path} where that is auto"
                )
        if self.top.get("mixed_precision") is not None and "mixed_precision" not in self.given:
            self.notes.append(
                f"mixed_precision beside {FILE}: accelerate refuses the file for it; here it fills bf16 and fp16 where they are auto"
            )
        if text is None:
            self.notes.append(f"{name} does not exist here: fill the deepspeed section from it")
            return {}
        try:
            read = read_dsconfig(text, "accelerate")
        except ConfigError as error:
            raise ConfigError(f"{name}, which the file names: {error.message}", None, None) from None
        if not read.strict:
            self.notes.append(f"{name} is not strict JSON, which accelerate refuses; the rendered file is")
        self.notes += doubts(read, name)
        return read.config

    def cluster(self) -> dict[str, Any]:
        """Return machines, processes and the rendezvous address."""
        machines, found = self.top.get("num_machines", 1), dict[str, Any]()
        if is_integer(self.top.get("main_process_port")) and 1 <= self.top["main_process_port"] <= 65535:
            found["master_port"] = self.top.pop("main_process_port")
        if isinstance(ip := self.top.get("main_process_ip"), str) and not host_problem(ip):
            found["master_addr"] = self.top.pop("main_process_ip")
        if machines == 1:
            self.top.pop("num_machines", None)
            return {**self.one_machine(), **found}
        return {**self.several(), **found}

    def one_machine(self) -> dict[str, Any]:
        """Return the ranks on this machine: their number and the GPUs that the file names."""
        processes, gpus = self.top.get("num_processes"), self.top.get("gpu_ids")
        if isinstance(processes, str) and processes.isdecimal():
            processes = int(processes)
        if not isinstance(processes, int) or not 1 <= processes <= MAX_SLOTS:
            return {}
        chosen = [] if not isinstance(gpus, str) or gpus == "all" else gpus.split(",")
        self.top.pop("num_processes")
        if len(chosen) == processes and chosen != [str(slot) for slot in range(processes)] and all(map(str.isdecimal, chosen)):
            return {"include": f"localhost:{self.top.pop('gpu_ids')}"}
        return {"hosts": {"localhost": processes}}

    def several(self) -> dict[str, Any]:
        """Return the launcher, the hostfile and the filters."""
        launchers = {"standard": "ssh", "pdsh": "pdsh", "nossh": "nossh", "slurm": "slurm", "openmpi": "openmpi", "mpich": "mpich"}
        places = {"deepspeed_hostfile": "hostfile", "deepspeed_exclusion_filter": "exclude", "deepspeed_inclusion_filter": "include"}
        found = {to: self.inner.pop(name) for name, to in places.items() if isinstance(self.inner.get(name), str)}
        if (launcher := launchers.get(self.inner.get("deepspeed_multinode_launcher", ""))) is not None:
            if self.inner.pop("deepspeed_multinode_launcher") == "standard":
                self.notes.append(
                    "deepspeed_multinode_launcher standard is started by hand on each machine; this Plan starts all of them, by ssh"
                )
            found["launcher"] = launcher
        if "hostfile" not in found:
            self.notes.append(f"num_machines is {self.top['num_machines']}, and the file names no hosts: write them under cluster.hosts")
        return found


def _plain(value: Any) -> Any:
    """Convert a value to one that a Plan can hold: YAML 1.1 reads some words as dates and some keys as numbers."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _suits(value: Any, kind: str) -> bool:
    """Return whether a value has the type of a key of the plugin."""
    wanted = {"int": is_integer(value), "number": is_integer(value) or isinstance(value, float), "bool": isinstance(value, bool)}
    return wanted.get(kind, isinstance(value, str))


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *sections, name = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[name] = value
