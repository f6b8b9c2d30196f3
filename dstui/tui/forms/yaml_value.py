"""The value of a key without a form, typed as YAML."""

from __future__ import annotations

from typing import Any


def yaml_value(text: str) -> Any:
    """What was typed, as YAML has it: 5e8 is a number, [1, 2] a list. DocumentError where it is none."""
    from dstui.plan.document import Document

    return Document(f"v: {text}").data["v"]


def no_yaml(text: str) -> str:
    """Why this is no YAML value; "" where it is one."""
    from dstui.plan.document import DocumentError

    try:
        yaml_value(text)
    except DocumentError as error:
        return error.message
    return ""
