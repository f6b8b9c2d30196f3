"""Read the possible configuration keys of an installed DeepSpeed and print them as JSON.

Run by file path, with the interpreter that has the release; imports nothing else of dstui:
    python dstui/reference/extract.py > dstui/plan/data/deepspeed-0.19.8.json
    PYTHONPATH=/path/to/an/older/release python dstui/reference/extract.py > dstui/plan/data/deepspeed-0.16.9.json

There are two kinds of sections, which DeepSpeed itself tells apart. A section with a pydantic model refuses an unknown key and names the
model, whose fields are read. Any other section is read by hand in DeepSpeed's code: it is replaced by a dictionary that records every
requested key, with the default and the requesting line.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import json
import logging
import os
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # never probes for a GPU: nothing here depends on one

PROBE = "dstui_probe"
BOUNDS = ("gt", "ge", "lt", "le")
LAST_VALUE = 2**62  # replaces sys.maxsize and similar values, which other JSON readers would round
SEEDS: dict[str, dict[str, Any]] = {  # what a section must contain before DeepSpeed reads the rest of it
    "optimizer": {"type": "Adam"},
    "scheduler": {"type": "WarmupLR"},
    "expert_parallel": {"enabled": False},
    "elasticity": {"enabled": True},
    "torch_autocast": {"enabled": True},
    "fp16": {"enabled": True, "initial_scale_power": 16},
    "data_efficiency.data_sampling.dynamic_batching": {"enabled": True},
}
HERE = Path(__file__).name


class Noted(dict[str, Any]):
    """A dictionary that records which keys are requested: key -> (default, line of DeepSpeed's source)."""

    def __init__(self, seed: dict[str, Any] | None = None) -> None:
        super().__init__(seed or {})
        self.asked: dict[str, tuple[Any, str]] = {}

    def note(self, key: Any, default: Any = None) -> None:
        known = self.asked.get(key)
        if isinstance(key, str) and key != PROBE and (known is None or known[0] is None):
            self.asked[key] = (default, known[1] if known else reading_line())

    def get(self, key: Any, default: Any = None) -> Any:
        self.note(key, default)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.note(key)
        return super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        self.note(key)
        return super().__getitem__(key)

    def keys(self) -> Any:  # most of DeepSpeed tests `name in section.keys()`
        return _Keys(self)

    def __copy__(self) -> Noted:
        twin = Noted(self)
        twin.asked = self.asked
        return twin


class _Keys:
    def __init__(self, owner: Noted) -> None:
        self.owner = owner

    def __contains__(self, key: object) -> bool:
        return key in self.owner

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self.owner)


def reading_line() -> str:
    """Return the line of DeepSpeed that reads the key, skipping its one-line getters: `runtime/config.py:123`."""
    frame = inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if "deepspeed" in path and not path.endswith((HERE, "config_utils.py")):
            return f"{path.rpartition('/deepspeed/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def parse(config: dict[str, Any]) -> Exception | None:
    """Return the exception of DeepSpeed's parser for a configuration with one rank, or None."""
    import deepspeed.runtime.config as module

    module.dist = types.SimpleNamespace(get_rank=lambda *_a, **_k: 0, get_world_size=lambda *_a, **_k: 1)
    try:
        module.DeepSpeedConfig(config)
    except Exception as error:  # any refusal is an answer
        return error
    return None


def put(path: str, value: Any) -> dict[str, Any]:
    """Build a configuration that is valid except for `value` at the dotted path."""
    config: dict[str, Any] = {"train_batch_size": 1}
    *parents, last = path.split(".")
    at = config
    for name in parents:
        at = at.setdefault(name, dict(SEEDS.get(name, {})))
    at[last] = value
    return config


def model_of(path: str) -> type | None:
    """Return the pydantic model of the section at `path`, if there is one."""
    error = parse(put(path, {PROBE: 1}))
    if isinstance(error, AttributeError):  # a validator of 0.14 fails on its own section: find the model by the field's name
        fields = (field for model in all_models() for field in declared(model) if field.key == path)
        return next((found for field in fields if (found := section_model(field.annotation))), None)
    if type(error).__name__ != "ValidationError":
        return None
    inner = [e["loc"] for e in error.errors() if e["loc"][-1] == PROBE]  # type: ignore[union-attr]
    found = getattr(error, "model", None)  # pydantic 1 has the model itself, pydantic 2 its name
    found = found or next((m for m in all_models() if m.__name__ == error.title), None)  # type: ignore[union-attr]
    for name in inner[0][:-1] if inner else ():
        found = found and section_model(next(field.annotation for field in declared(found) if field.key == name))
    return found


def all_models() -> Iterator[type]:
    """Yield every imported configuration model of DeepSpeed."""
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    waiting = [DeepSpeedConfigModel]
    while waiting:
        model = waiting.pop()
        yield model
        waiting += model.__subclasses__()


class Declared(typing.NamedTuple):
    """One field of a model, the same for pydantic 1 (which DeepSpeed 0.14 uses) and 2."""

    key: str
    name: str
    annotation: Any
    default: Any
    bounds: dict[str, Any]
    extra: dict[str, Any]


def declared(model: Any) -> Iterator[Declared]:
    """Yield the fields of a model of pydantic 1 or 2."""
    if not hasattr(model, "__pydantic_core_schema__"):
        for name, field in model.__fields__.items():
            bounds = {bound: limit for bound in BOUNDS if (limit := getattr(field.field_info, bound)) is not None}
            annotation = typing.Optional[field.outer_type_] if field.allow_none else field.outer_type_  # noqa: UP045
            yield Declared(field.alias, name, annotation, field.get_default(), bounds, field.field_info.extra)
        return
    for name, info in model.model_fields.items():
        bounds = {bound: limit for part in info.metadata for bound in BOUNDS if (limit := getattr(part, bound, None)) is not None}
        yield Declared(
            info.alias or name, name, info.annotation, info.get_default(call_default_factory=True), bounds, info.json_schema_extra or {}
        )


def section_model(annotation: Any) -> type | None:
    """Return the model inside an annotation such as `Optional[Model]`."""
    for part in (annotation, *typing.get_args(annotation)):
        if inspect.isclass(part) and (hasattr(part, "__pydantic_core_schema__") or hasattr(part, "__fields__")):
            return part
    return None


def type_name(annotation: Any) -> str:
    """Convert an annotation to a type of the catalogue: `int`, `bool | null`, `list[str]`, `choice`, `section`, `object`."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_name(part) for part in args)
    if origin is typing.Literal or (inspect.isclass(annotation) and issubclass(annotation, enum.Enum)):
        return "choice"
    if origin is list:
        return f"list[{type_name(args[0])}]"
    if section_model(annotation):
        return "section"
    plain = {type(None): "null", Path: "path", typing.Any: "any", object: "any", tuple: "tuple", dict: "dict", list: "list"}
    if origin is dict or annotation is typing.Dict:  # noqa: UP006
        return "dict"
    for kind in (bool, int, float, str):  # pydantic 1 makes a subclass for each bounded number
        if inspect.isclass(annotation) and issubclass(annotation, kind):
            return kind.__name__
    return plain.get(annotation, "object")


def choices(annotation: Any) -> list[Any]:
    """Return the values of a Literal or an Enum, also inside Optional and List."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return list(dict.fromkeys(plain(member) for member in annotation))
    return [choice for part in typing.get_args(annotation) for choice in choices(part)]


def plain(value: Any) -> Any:
    """Convert a default to JSON data; models and other classes become text."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return min(int(value), LAST_VALUE)
    if isinstance(value, float):
        return value if value != float("inf") else "inf"
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return {} if section_model(type(value)) else str(value)


def line_of_field(model: type, name: str) -> str:
    """Return where a field is declared: `runtime/zero/config.py:95`."""
    with contextlib.suppress(OSError, TypeError):
        lines, start = inspect.getsourcelines(model)
        for offset, line in enumerate(lines):
            if line.strip().startswith(f"{name}:"):
                source = inspect.getsourcefile(model) or ""
                return f"{source.rpartition('/deepspeed/')[2]}:{start + offset}"
    return ""


def fields_of(model: type, path: str) -> Iterator[dict[str, Any]]:
    """Yield every key of a pydantic section and of the sections inside it."""
    for field in declared(model):
        record: dict[str, Any] = {"path": f"{path}.{field.key}", "type": type_name(field.annotation), "default": plain(field.default)}
        record |= field.bounds
        if allowed := choices(field.annotation):
            record["choices"] = allowed
        if field.key != field.name:
            record["python_name"] = field.name
        if field.extra.get("deprecated"):
            record |= {
                "deprecated": True,
                "replacement": field.extra.get("new_param", ""),
                "carried_over": field.extra.get("set_new_param", True),
            }
        record["source"] = line_of_field(model, field.name)
        inner = section_model(field.annotation)
        if inner:
            record["strict"] = True
        yield record
        if inner:
            yield from fields_of(inner, record["path"])


def keys_under(path: str, asked: dict[str, tuple[Any, str]]) -> Iterator[dict[str, Any]]:
    """Yield the keys that were read at `path`, each followed by those inside of it."""
    for name, (default, source) in asked.items():
        at = f"{path}.{name}" if path else name
        record: dict[str, Any] = {
            "path": at,
            "type": type_name(type(default)) if default is not None else "any",
            "default": plain(default),
            "source": source,
        }
        scalar = isinstance(default, (bool, int, float, str))
        model = None if scalar else model_of(at)
        spy = Noted(SEEDS.get(at, {}))
        if model is None and not scalar:
            parse(put(at, spy))
        if model or spy.asked:
            record |= {"type": "section", "default": None, "strict": model is not None}
        yield record
        yield from fields_of(model, at) if model else keys_under(at, spy.asked)


def parameters(cls: Any) -> dict[str, Any]:
    """Return the keyword parameters of a class and their defaults; those without one are marked as required."""
    signature = inspect.signature(cls.__init__).parameters
    skipped = ("self", "optimizer", "params", "model_params")
    return {
        name: {"required": True} if p.default is p.empty else {"default": plain(p.default)}
        for name, p in signature.items()
        if name not in skipped and p.kind is not p.VAR_KEYWORD
    }


def optimizers() -> dict[str, Any]:
    """Return type -> parameters of the class that DeepSpeed builds for it, those of torch.optim under their exact names."""
    import torch
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

    own = {"adam": FusedAdam, "cpuadam": DeepSpeedCPUAdam, "lamb": FusedLamb, "lion": FusedLion, "cpulion": DeepSpeedCPULion}
    own["cpuadagrad"] = DeepSpeedCPUAdagrad
    classes = {
        n: c for n, c in vars(torch.optim).items() if inspect.isclass(c) and issubclass(c, torch.optim.Optimizer) and n != "Optimizer"
    }
    return {name: parameters(cls) for name, cls in {**own, **classes}.items()}


def schedulers() -> dict[str, Any]:
    """Return DeepSpeed's schedulers and their parameters."""
    from deepspeed.runtime import lr_schedules

    names = [name for name in vars(lr_schedules) if inspect.isclass(getattr(lr_schedules, name))]
    own = [name for name in names if getattr(lr_schedules, name).__module__ == lr_schedules.__name__]
    return {
        name: parameters(getattr(lr_schedules, name))
        for name in own
        if "optimizer" in inspect.signature(getattr(lr_schedules, name)).parameters
    }


def removed() -> dict[str, str]:
    """Return the keys that this release refuses because the feature is gone, with its message."""
    import deepspeed.runtime.config as module

    top = getattr(module, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {})
    zero = getattr(module, "_REMOVED_ZERO_CONFIG_KEYS", {})
    return {**top, **{f"zero_optimization.{name}": text for name, text in zero.items()}}


def main() -> None:
    """Print everything as one JSON object, one key per line, so that two releases can be compared with diff."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # DeepSpeed prints while it is imported; that must not mix with the answer
    import deepspeed
    import deepspeed.runtime.config as module
    from deepspeed.utils import logger

    logger.setLevel(logging.CRITICAL)
    gone = removed()
    spy = Noted({"train_batch_size": 1})
    parse(spy)
    keys = [record for record in keys_under("", spy.asked) if record["path"] not in gone and record["path"]]
    facts = {
        "version": deepspeed.__version__.partition("+")[0],
        "optimizer_types": list(module.DEEPSPEED_OPTIMIZERS),
        "optimizers": optimizers(),
        "schedulers": schedulers(),
        "removed": gone,
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    listed = ",\n".join("    " + json.dumps(record) for record in sorted(keys, key=lambda r: str(r["path"])))
    output.write("{\n" + ",\n".join(lines) + ',\n  "keys": [\n' + listed + "\n  ]\n}\n")
    output.close()


if __name__ == "__main__":
    main()
