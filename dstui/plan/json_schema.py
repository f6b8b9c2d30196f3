"""The JSON Schema of a Plan, with which editors complete and check it. Made from the same facts as the forms and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from dstui.plan.accelerate_keys import PLUGIN, SECTION, TOP, AccelerateKey
from dstui.plan.catalogue import Key, release
from dstui.plan.model import SECTIONS, NamedModel

DRAFT = "https://json-schema.org/draft/2020-12/schema"
WORDS = {"type": "array", "items": {"type": ["string", "number", "boolean", "object"]}, "description": ""}
"""A list of words: a plain scalar keeps its spelling, and YAML reads an unquoted {ds_config} as a mapping."""
KINDS: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": ["string", "number", "boolean"]},
    "host": {"type": ["string", "number"]},
    "module": {"type": "string"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "words": WORDS,
    "words or str": {"anyOf": [{"type": "string"}, WORDS]},
    "option": {"type": ["string", "number"]},
    "options": WORDS,
    "lines": WORDS,
    "labels": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "secrets": {"type": "object", "additionalProperties": {"type": "string"}},
    "env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "slots": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}, "minProperties": 1},
    "patterns": {"type": "object", "additionalProperties": {"type": "string"}},
    "mapping": {"type": "object"},
}
"""The kinds of dstui's own fields (`dstui.plan.kinds`)."""
TYPES: Mapping[str, Mapping[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "path": {"type": "string"},
    "dict": {"type": "object"},
    "section": {"type": "object"},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "null": {"type": "null"},
}
"""The types of DeepSpeed's keys. Other types accept anything."""
AUTO = {"const": "auto", "description": "filled by the Trainer or by accelerate"}


def plan_schema(version: str | None = None, at: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a Plan with the keys of one release of DeepSpeed (default: the newest known).

    `at` is the JSON Pointer of the place where another schema will hold it: a Plan's schema refers to parts of itself.
    """
    known = release(version)
    own = {name: _section(cls) for name, cls in SECTIONS.items()}
    several = "Several models in one run: name -> role, model, deepspeed."
    one = _section(NamedModel)
    one["properties"] |= {name: {"$ref": f"#{at}/properties/{name}"} for name in ("model", "deepspeed")}
    models = {"type": ["object", "null"], "description": several, "additionalProperties": one}
    deepspeed = _deepspeed(known.keys(), f"DeepSpeed's own configuration, release {known.version}.")
    order = {
        "version": {"const": 1, "description": "The version of the Plan format."},
        "extends": {"type": ["string", "null"], "description": "A file with defaults for keys that this Plan does not set."},
        "name": {"type": ["string", "number", "null"], "description": "What the run is called."},
        "job": own["job"],
        "model": {**own["model"], "type": ["object", "null"]},
        "models": models,
        "cluster": own["cluster"],
        "run": own["run"],
        "accelerate": _accelerate(),
        "deepspeed": deepspeed,
    }
    head = {"$schema": DRAFT, "title": "dstui Plan", "description": "What to train, on what, and how DeepSpeed is configured."}
    return {**head, "type": "object", "properties": order, "required": ["version"], "additionalProperties": False}


def _section(cls: type) -> dict[str, Any]:
    """Describe a section of the Plan by its dataclass: its fields, and no others."""
    properties = {one.name: _field(one) for one in fields(cls)}
    return {"type": ["object", "null"], "description": _first_line(cls), "properties": properties, "additionalProperties": False}


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def _field(one: Field[Any]) -> dict[str, Any]:
    meta = one.metadata
    if meta["of"]:
        return {**_section(meta["of"]), "description": meta["help"]}
    found = dict(KINDS[meta["kind"]])
    if meta["choices"]:
        found = {"enum": [*meta["choices"], *([None] if one.default is None else [])]}
    elif one.default is None:
        found = {"anyOf": [found, {"type": "null"}]}
    bounds = {name: meta[name] for name in ("minimum", "maximum") if meta[name] is not None}
    if bounds and "anyOf" in found:
        found = {"anyOf": [{**found["anyOf"][0], **bounds}, *found["anyOf"][1:]]}
    else:
        found |= bounds
    if (
        one.default is not MISSING
        and not isinstance(one.default, tuple)
        and (one.default is None or isinstance(one.default, (str, int, float)))
    ):
        found["default"] = one.default
    return {**found, "description": meta["help"]}


def _deepspeed(keys: Iterable[Key], description: str) -> dict[str, Any]:
    """Describe DeepSpeed's keys as nested objects. Unknown keys are refused only where DeepSpeed refuses them."""
    root: dict[str, Any] = {"type": "object", "description": description, "properties": {}}
    nodes: dict[str, dict[str, Any]] = {"": root}
    for key in keys:
        node = nodes[key.path] = _key(key)
        parent = nodes.get(key.path.rpartition(".")[0])
        if parent is not None:
            parent.setdefault("properties", {})[key.name] = node
            if key.python_name:
                parent["properties"][key.python_name] = node
    return root


def _key(key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"description": " ".join(filter(None, (key.help, f"ZeRO stages {key.stages}." if key.stages else "")))}
    if key.type == "section":
        return {**found, "type": ["object", "null"], **({"additionalProperties": False} if key.strict else {})}
    kinds = key.type.split(" | ")
    alternatives = [alternative for kind in kinds if (alternative := _type(kind, key)) is not None]
    if len(alternatives) == len(kinds) and "any" not in kinds and "object" not in kinds:
        found["anyOf"] = [*alternatives, AUTO]
    if key.default is not None:
        found["default"] = key.default
    return found | ({"deprecated": True} if key.deprecated else {})


def _type(kind: str, key: Key) -> dict[str, Any] | None:
    if kind == "choice":
        return {"enum": list(key.choices)}
    if kind.startswith("list["):
        inner = _type(kind[5:-1], key)
        return {"type": "array", **({"items": inner} if inner is not None else {})}
    if kind not in TYPES:
        return None
    bounds = {"minimum": key.minimum, "maximum": key.maximum, "exclusiveMinimum": key.above, "exclusiveMaximum": key.below}
    limits = {name: bound for name, bound in bounds.items() if bound is not None} if kind in ("int", "float") else {}
    return {**TYPES[kind], **limits}


def _accelerate() -> dict[str, Any]:
    """Describe accelerate's keys. Unknown ones are errors at the top level and ignored in deepspeed_config."""
    properties = {name: _accelerate_schema(key) for name, key in TOP.items()}
    properties[SECTION]["properties"] = {name: _accelerate_schema(key) for name, key in PLUGIN.items()}
    description = "Keys of accelerate that DeepSpeed does not have."
    return {"type": ["object", "null"], "description": description, "properties": properties, "additionalProperties": False}


def _accelerate_schema(key: AccelerateKey) -> dict[str, Any]:
    if key.choices:
        return {"enum": [*key.choices, None], "description": key.help}
    kinds = {"int": "integer", "number": "number", "bool": "boolean", "section": "object", "list": "array"}
    words = ["string", "number", "boolean"] if key.kind == "str" else [kinds[key.kind], "string"]
    return {"type": [*words, "null"], "description": key.help}
