"""The input of rules: the configuration as written and as DeepSpeed reads it, the machine, the world size, the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dstui.adopt.script import NoScript, ScriptFacts
from dstui.base.dataclass import dataclass
from dstui.check.auto_values import AUTO, fill_auto
from dstui.check.forms import Fit, fit
from dstui.plan.catalogue import Key, Release, version_tuple
from dstui.plan.finding import Fix, Operation, Severity, When
from dstui.plan.handed_over import ACCELERATE_OPTION, hands_over, named_files
from dstui.plan.hostfile import HostfileProblem

if TYPE_CHECKING:
    from dstui.machine.slurm_offers import SlurmOffers
    from dstui.machine.snapshot import Gpu, Machine
    from dstui.plan import Plan

MISSING = object()
"""The value of `Context.written` for a missing key: null is a value."""
UNPROBED = "not inspected yet"
"""The source of a Machine that was not probed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where a rule applies, before it becomes a finding.

    `path` is dotted from the configuration's root, or after "^" from the file's. The other fields override those of the rule.
    """

    path: str
    message: str
    why: str = ""
    says: str = ""
    fix: Fix | None = None
    severity: Severity | None = None
    when: When | None = None
    line: int | None = None


def no_line(_path: str) -> int | None:
    """Return None: the default of `Context.lines` if there is no text."""
    return None


@dataclass
class Context:
    """One configuration to be judged. Created for each check, and its caches with it."""

    raw: Mapping[str, Any]
    """The configuration as written."""
    release: Release
    integration: str = "deepspeed"
    world_size: int | None = None
    machine: Machine | None = None
    plan: Plan | None = None
    root: str = ""
    """The prefix of a configuration's paths in the file: `deepspeed.` in a Plan."""
    lines: Callable[[str], int | None] = no_line
    script: ScriptFacts | NoScript | None = None
    """The facts about the training script; None if it was not analysed."""
    model: Mapping[str, Any] | None = None
    """The model's config.json; None if it was not read or is not on this machine."""
    trained: bool = True
    """True if the model is trained; of several models, some may only compute."""
    pool: Mapping[str, int] | HostfileProblem | None = None
    """The content of the Plan's hostfile, or why it is unknown; None if it names none or it was not read."""
    installed: str | None = None
    """The exact release of DeepSpeed that is installed or requested; `release` may be an older one with a catalogue."""
    env_lines: Sequence[tuple[Severity, str]] = ()
    """The effect of the .deepspeed_env files that DeepSpeed would read, for the Plan as a whole."""
    slurm: SlurmOffers | None = None
    """The offers of this host's SLURM cluster; None if there is no cluster or nobody requested them."""
    config: Mapping[str, Any] = field(init=False)
    """The configuration that reaches DeepSpeed: "auto" as the reader fills it in, and without the key if that is unknown."""
    flat: dict[str, Any] = field(init=False)
    """Dotted path -> value of `config`, sections included."""
    memo: dict[str, Any] = field(default_factory=dict)
    """Values that several rules need, computed once."""
    _fits: dict[str, Fit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accelerate = self.plan.accelerate if self.plan is not None else None
        self.config = self.raw if self.integration == "deepspeed" else without_auto(fill_auto(self.raw, self.integration, accelerate))
        self.flat = dict(flatten(self.config))

    @property
    def unread(self) -> bool:
        """Return whether this is an empty section of a Plan that nothing passes to the script, so that missing keys do not matter."""
        if self.plan is None or self.raw or self.plan.models or hands_over(self.plan):
            return False
        facts = self.facts
        if self.integration == "accelerate":
            of_accelerates_own = any(file.option == ACCELERATE_OPTION for file in named_files(self.plan))
            return of_accelerates_own or (facts is not None and facts.own_configuration and not facts.under_accelerate)
        if facts is None or facts.integration is None or facts.own_configuration or any(named_files(self.plan)):
            return True
        if facts.integration == "accelerate":  # finds it in variables that only a Plan with this integration sets
            return True
        return bool(facts.suggested_args) and not facts.needs_argument

    # The written values

    def written(self, path: str) -> Any:
        """Return the value that reaches DeepSpeed; MISSING if there is none."""
        return self.flat.get(path, MISSING)

    def has(self, path: str) -> bool:
        """Return whether the key is present, even as null."""
        return path in self.flat

    def section(self, path: str) -> Mapping[str, Any]:
        """Return the content of a section; empty if it is missing or not a mapping."""
        value = self.flat.get(path)
        return value if isinstance(value, Mapping) else {}

    # The values in DeepSpeed

    def fit(self, path: str) -> Fit:
        """Return the result of DeepSpeed's own conversion of the written value, or why it is refused."""
        found = self._fits.get(path)
        if found is None:
            found = self._fits[path] = self._fit(path)
        return found

    def _fit(self, path: str) -> Fit:
        key = self.key(path)
        value = self.flat.get(path, MISSING)
        if value is MISSING and key and key.python_name:
            value = self.flat.get(f"{path.rpartition('.')[0]}.{key.python_name}", MISSING)
        if value is MISSING or (value == AUTO and key is not None and self.drops_auto(path)):
            return Fit(True, key.default if key else None)
        if key is None or not self.modelled(path):
            return Fit(True, value)  # read by hand, unconverted
        return fit(value, key, old=self.old)

    def value(self, path: str) -> Any:
        """Return the value that DeepSpeed uses: the converted one, else the default (also if the written one would be refused)."""
        key = self.release.key(path)
        if path not in self.flat and (key is None or not key.python_name):  # most keys of most configurations
            return key.default if key else None
        found = self.fit(path)
        return found.value if found.ok else key.default if key else None

    def on(self, path: str) -> bool:
        """Return whether a switch is on."""
        return bool(self.value(path))

    def number(self, path: str) -> float | None:
        """Return a number; None if the value is not one (True and False are not)."""
        value = self.value(path)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def text(self, path: str) -> str:
        """Return a string; "" if the value is not one."""
        value = self.value(path)
        return value if isinstance(value, str) else ""

    def key(self, path: str) -> Key | None:
        """Return the key in the judged release."""
        return self.release.key(path)

    def drops_auto(self, path: str) -> bool:
        """Return whether DeepSpeed silently drops "auto" here, which it does only in sections with a pydantic model."""
        return self.modelled(path) and not (self.old and path.startswith("comms_logger"))

    def modelled(self, path: str) -> bool:
        """Return whether the section around a key has a pydantic model, which converts and validates its values."""
        parent = path.rpartition(".")[0]
        holder = self.release.key(parent) if parent else None
        return holder is not None and holder.strict

    def before(self, version: str) -> bool:
        """Return whether the judged release is older than this version."""
        return version_tuple(self.release.version) < version_tuple(version)

    @property
    def old(self) -> bool:
        """Return whether the release converts values like pydantic 1."""
        return self.before("0.15")

    @property
    def stage(self) -> int:
        """The ZeRO stage of the training."""
        zero = self.flat.get("zero_optimization")
        if isinstance(zero, bool):
            return int(zero)
        stage = self.value("zero_optimization.stage")
        return int(stage) if isinstance(stage, (int, float)) else 0

    def offload(self, what: str) -> str:
        """Return where `optimizer` or `param` is kept: none, cpu or nvme."""
        old = {"optimizer": "cpu_offload", "param": "cpu_offload_param"}[what]
        if self.on(f"zero_optimization.{old}"):
            return "cpu"
        return self.text(f"zero_optimization.offload_{what}.device") or "none"

    @property
    def optimizer(self) -> str:
        """The optimizer's type as DeepSpeed reads it: its own in lower case, torch's as written; "" for none."""
        kind = self.text("optimizer.type")
        return kind.lower() if kind.lower() in self.release.optimizer_types else kind

    @property
    def hosts(self) -> Mapping[str, int]:
        """Host -> slots from the Plan or its hostfile; empty if unknown."""
        from dstui.render.launch import RenderError, hosts_of

        try:
            found = hosts_of(self.plan, self.pool if isinstance(self.pool, Mapping) else None) if self.plan is not None else None
        except RenderError:
            return {}
        return found or {}

    @property
    def facts(self) -> ScriptFacts | None:
        """The facts about the script; None if it was not analysed or there is none."""
        return self.script if isinstance(self.script, ScriptFacts) else None

    @property
    def cpu_only(self) -> bool:
        """Return whether the machine is known to have no GPU. False for one that was not probed."""
        machine = self.machine
        return machine is not None and machine.accelerator == "cpu" and machine.source != UNPROBED

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The machine's usable GPUs, if they are known."""
        return tuple(gpu for gpu in self.machine.gpus if gpu.problem is None) if self.machine else ()

    # The answers of rules

    def problem(self, path: str, message: str, **more: Any) -> Problem:
        """Return a problem at a key."""
        return Problem(path, message, **more)

    def put(self, path: str, value: Any, text: str) -> Fix:
        """Return a fix that writes a key and the sections that it needs."""
        return Fix(text, (self._add(path, value),))

    def drop(self, path: str, text: str) -> Fix:
        """Return a fix that removes a key."""
        return Fix(text, ({"op": "remove", "path": self.pointer(path)},))

    def move(self, path: str, to: str, text: str, value: Any = MISSING) -> Fix:
        """Return a fix that moves a key's value (or writes another) to a new path. A mere rename keeps the key's place."""
        new = self.written(path) if value is MISSING else value
        if path.rpartition(".")[0] == to.rpartition(".")[0] and not self.has(to):
            renamed = {"op": "move", "from": self.pointer(path), "path": self.pointer(to)}
            other = {"op": "replace", "path": self.pointer(to), "value": new}
            return Fix(text, (renamed,) if new is self.written(path) else (renamed, other))
        return Fix(text, ({"op": "remove", "path": self.pointer(path)}, self._add(to, new)))

    def steps(self, text: str, *fixes: Fix) -> Fix:
        """Combine several fixes into one; they must not need each other's sections."""
        return Fix(text, tuple(operation for one in fixes for operation in one.patch or ()))

    def pointer(self, path: str) -> str:
        """Convert a dotted path to a JSON Pointer into the file."""
        return pointer(self.root + path)

    def _add(self, path: str, value: Any) -> Operation:
        parts, at = path.split("."), self.raw
        for depth, part in enumerate(parts[:-1]):
            inner = at.get(part)
            if not isinstance(inner, Mapping):
                for name in reversed(parts[depth + 1 :]):
                    value = {name: value}
                return {"op": "replace" if part in at else "add", "path": self.pointer(".".join(parts[: depth + 1])), "value": value}
            at = inner
        return {"op": "replace" if parts[-1] in at else "add", "path": self.pointer(path), "value": value}


def pointer(path: str) -> str:
    """Convert `a.b` to `/a/b`."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path.split("."))


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and value of every key, sections before their content."""
    for name, value in config.items():
        path = f"{prefix}{name}"
        yield path, value
        if isinstance(value, Mapping):
            yield from flatten(value, path + ".")


def without_auto(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without the keys whose value is "auto"."""
    return {
        name: without_auto(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
        if not (isinstance(value, str) and value == AUTO)
    }
