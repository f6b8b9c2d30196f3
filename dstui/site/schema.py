"""The JSON Schema of a site file: a Plan's own for its defaults, and the forms of the other keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dstui.plan.json_schema import DRAFT, plan_schema
from dstui.plan.launchers import LAUNCHERS
from dstui.site.settings import SETTINGS, Setting
from dstui.site.settings import TOP as SETTINGS_KEYS
from dstui.site.site_file import KEYS, LOCKABLE, LONGEST, MAX_FILES

DEFAULTS = "/properties/defaults"
"""The place of a Plan's keys in both schemas."""
TEXT = {"type": "string", "maxLength": LONGEST}
TEXTS = {"type": "object", "additionalProperties": TEXT}
LOCK = {
    "anyOf": [
        {"not": {"type": "object"}},
        {
            "type": "object",
            "properties": {
                "value": {"description": "The only allowed value."},
                "min": {"type": "number"},
                "max": {"type": "number"},
                "choices": {"type": "array", "minItems": 1},
                "when": {"type": "object", "description": "It only applies with these values of other keys."},
                "reason": {**TEXT, "description": "The reason that users see."},
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
    "bundle": {
        "type": "object",
        "properties": {"include": {"type": "array", "items": {"type": "string", "pattern": "^/"}, "maxItems": MAX_FILES}},
        "additionalProperties": False,
    },
}


def site_schema(version: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a site file with the keys of one release of DeepSpeed (default: the newest known)."""
    plan = plan_schema(version, DEFAULTS)
    defaults = {name: part for name, part in plan["properties"].items() if name in LOCKABLE}
    forms = {**FORMS, "defaults": {"type": "object", "properties": defaults, "additionalProperties": False}}
    properties = {name: {**forms[name], "description": words} for name, words in KEYS.items()}
    head = {"$schema": DRAFT, "title": "dstui site file", "description": "Settings for all users of a site."}
    return {**head, "type": "object", "properties": properties, "required": ["version"], "additionalProperties": False}


def settings_schema(actions: Iterable[str]) -> dict[str, Any]:
    """Return the JSON Schema of the user's settings; `actions` are the names that `keys` may have."""
    plan = plan_schema(None, DEFAULTS)
    key = {"type": "string", "minLength": 1}
    keys = {"anyOf": [key, {"type": "array", "items": key, "minItems": 1}]}
    properties: dict[str, Any] = {
        "version": {"const": 1},
        **{setting.name: _form_of(setting) for setting in SETTINGS},
        "keys": {"type": "object", "properties": dict.fromkeys(actions, keys), "additionalProperties": False},
        "defaults": {"type": "object", "properties": plan["properties"], "additionalProperties": False},
    }
    described = {name: {**form, "description": SETTINGS_KEYS[name]} for name, form in properties.items()}
    head = {"$schema": DRAFT, "title": "dstui settings", "description": "A user's settings, and the defaults of all of their Plans."}
    return {**head, "type": "object", "properties": described, "additionalProperties": False}


def _form_of(setting: Setting) -> dict[str, Any]:
    if setting.choices:
        return {"enum": list(setting.choices), "default": setting.default}
    if isinstance(setting.default, (bool, str)):
        return {"type": "boolean" if isinstance(setting.default, bool) else "string", "default": setting.default}
    return {"type": "array", "items": {"type": "string"}, "default": list(setting.default)}
