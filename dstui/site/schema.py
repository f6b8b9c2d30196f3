"""The JSON Schema of a site file: a Plan's own for its defaults, and the forms of the other keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.plan.json_schema import DRAFT, plan_schema
from dstui.plan.launchers import LAUNCHERS
from dstui.site.site_file import KEYS, LOCKABLE, LONGEST

TEXT = {"type": "string", "maxLength": LONGEST}
TEXTS = {"type": "object", "additionalProperties": TEXT}
LOCK = {
    "anyOf": [
        {"not": {"type": "object"}},
        {
            "type": "object",
            "properties": {
                "value": {"description": "The one value that is possible."},
                "min": {"type": "number"},
                "max": {"type": "number"},
                "choices": {"type": "array", "minItems": 1},
                "when": {"type": "object", "description": "Values of other keys under which alone it holds."},
                "reason": {**TEXT, "description": "What users read."},
            },
            "additionalProperties": False,
            "oneOf": [{"required": ["value"]}, {"required": ["choices"]}, {"anyOf": [{"required": ["min"]}, {"required": ["max"]}]}],
        },
    ]
}
FORMS: Mapping[str, Mapping[str, Any]] = {
    "version": {"const": 1},
    "name": TEXT,
    "welcome": TEXT,
    "contact": TEXT,
    "locked": {"type": "object", "propertyNames": {"pattern": f"^({'|'.join(LOCKABLE)})([.].+)?$"}, "additionalProperties": LOCK},
    "launchers": {"type": "array", "items": {"enum": list(LAUNCHERS)}, "minItems": 1},
    "templates": TEXT,
    "machines": TEXTS,
    "causes": TEXTS,
}


def site_schema(version: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a site file with the keys of one release of DeepSpeed (default: the newest known)."""
    plan = plan_schema(version)
    defaults = {name: part for name, part in plan["properties"].items() if name in LOCKABLE}
    forms = {**FORMS, "defaults": {"type": "object", "properties": defaults, "additionalProperties": False}}
    properties = {name: {**forms[name], "description": words} for name, words in KEYS.items()}
    head = {"$schema": DRAFT, "title": "dstui site file", "description": "What one engineer sets for everybody."}
    return {**head, "type": "object", "properties": properties, "required": ["version"], "additionalProperties": False}
