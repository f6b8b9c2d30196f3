"""Find the model that a training script names itself: the default of an option, or a constant given to `from_pretrained`. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dstui.adopt.model_options import MODEL, OPEN
from dstui.adopt.pycode import Call, Code

LOADED = re.compile(r"(?:\w*Model\w*|\w*For\w+|\w*LMHead\w*)\.from_pretrained$")
"""Calls that load weights, by class. Tokenizers, processors and configurations are other classes."""


def named_model(code: Code) -> tuple[str, str]:
    """Return the only model that a script names, and the line that shows it; ("", "") if it names none or several."""
    for found in (dict(_defaults(code)), dict(_loaded(code))):
        if found:
            return next(iter(found.items())) if len(found) == 1 else ("", "")
    return "", ""


def _defaults(code: Code) -> Iterator[tuple[str, str]]:
    """Yield the defaults of options that name a model: of add_argument, and of fields of a dataclass."""
    names = MODEL[:-1]  # "model" alone is often an architecture (resnet50)
    lines = {option.line: option.name for option in code.options if option.name in names}
    for call in code.calls:
        if call.node.lineno in lines and (text := _text(code, call.value("default"))):
            yield text, f"{code.place(call.node.lineno)}: the default of --{lines[call.node.lineno]}"
    for name in names:
        for value in code.assigned.get(name, []):
            default = Call("field", value).value("default") if _is_field(value) and isinstance(value, ast.Call) else None
            if text := _text(code, default):
                yield text, f"{code.place(value.lineno)}: the default of --{name}"


def _is_field(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name | ast.Attribute) and ast.unparse(value.func).endswith("field")


def _loaded(code: Code) -> Iterator[tuple[str, str]]:
    """Yield the constants given to from_pretrained of a model's class."""
    for call in code.calls:
        given = call.value("pretrained_model_name_or_path", place=0) if LOADED.search(call.name) else None
        if text := _text(code, given):
            yield text, f"{code.place(call.node.lineno)}: {call.name.rpartition('.')[0].rpartition('.')[2]}.from_pretrained"


def placed_on_gpu(code: Code) -> str:
    """Return the type of the weights that from_pretrained puts on the GPU itself (device_map): as written, "default", or "" for none.

    Quantized ones count as none: they never are there in full.
    """
    for call in code.calls:
        if not LOADED.search(call.name) or call.value("quantization_config", "load_in_4bit", "load_in_8bit") is not None:
            continue
        if _names_gpu(code, call.value("device_map")):
            given = call.value("dtype", "torch_dtype")
            return "default" if given is None else ast.unparse(given)
    return ""


def _names_gpu(code: Code, value: ast.expr | None) -> bool:
    """Return whether a device_map is a text or a dictionary, or a name with one such value, that is not for the CPU."""
    if isinstance(value, ast.Name) and value.id not in code.changed:
        value = next(iter(code.assigned.get(value.id, [])), None) if len(code.assigned.get(value.id, [])) == 1 else None
    places = value.values if isinstance(value, ast.Dict) else [value]
    named = isinstance(value, ast.Dict) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
    return named and not any(isinstance(place, ast.Constant) and place.value in ("cpu", "disk") for place in places)


def _text(code: Code, value: ast.expr | None) -> str:
    """Return the text of a constant, or of a name that is assigned once; "" if it does not name a model."""
    if isinstance(value, ast.Name):
        values = code.assigned.get(value.id, [])
        value = values[0] if len(values) == 1 else None
    text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
    return "" if OPEN.search(text) or text.startswith("-") else text
