"""Read the DeepSpeed configuration that a script has as a literal: `config={…}`, also with plain names in it. Pure, nothing is run."""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dstui.adopt.pycode import Code
from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.plan.catalogue import lookup

HANDED_OVER: Mapping[str, tuple[str, ...]] = {
    "deepspeed.initialize": ("config", "config_params"),
    "DeepSpeedStrategy": ("config",),
    "DeepSpeedPlugin": ("hf_ds_config",),
    "TrainingArguments": ("deepspeed",),
}
"""Call -> the keywords by which it gets a configuration."""
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
LARGEST = 1e15
MAX_PARTS = 2_000


class Unknown(Exception):
    """Only a run shows a value."""


@dataclass(frozen=True, slots=True)
class LiteralConfiguration:
    """The configuration of a script, as far as its text shows it."""

    text: str
    """As JSON; empty if the script has none, or no key of DeepSpeed's is visible."""
    left_out: tuple[str, ...] = ()
    """Dotted keys whose value only a run shows."""
    changed: bool = False
    """True if the script also sets keys of it later."""

    @property
    def complete(self) -> bool:
        """Return whether the text is the whole configuration: a part of it would fail checks that the script itself passes."""
        return bool(self.text) and not self.left_out and not self.changed


def literal_configuration(code: Code) -> LiteralConfiguration:
    """Return the configuration that the script passes."""
    for name, keywords in HANDED_OVER.items():
        call = code.call(name)
        value = call.value(*keywords) if call is not None else None
        if value is None:
            continue
        reader = _Values(code)
        try:
            config = reader.value(value, "")
        except (Unknown, RecursionError):
            continue
        if isinstance(config, dict) and any(lookup(key) for key in config):
            return LiteralConfiguration(json.dumps(config), tuple(reader.left_out), reader.changed)
    return LiteralConfiguration("")


def about_literal(found: LiteralConfiguration) -> list[str]:
    """Return what a Plan for the script has to say of the configuration; nothing if it is no literal."""
    if found.complete:
        return ["the deepspeed section is a copy of the script's own, for checks and the forecast: the script does not read it"]
    open_keys = [*map(sanitise, found.left_out), *(["keys that are set later"] if found.changed else [])]
    return [f"the script's own configuration is not copied: only a run shows {', '.join(open_keys)}"] if found.text else []


class _Values:
    """Computes literals of one program."""

    def __init__(self, code: Code) -> None:
        self.code, self.left_out, self.changed, self.parts = code, list[str](), False, 0

    def value(self, node: ast.expr, path: str) -> Any:
        """Return the value of an expression. Raises Unknown."""
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise Unknown
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                return value
            case ast.Dict(keys=keys, values=values):
                return dict(self.pairs(zip(keys, values, strict=True), path))
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given):
                return dict(self.pairs(((ast.Constant(one.arg) if one.arg else None, one.value) for one in given), path))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self.value(item, path) for item in items]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand, path)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
                return self.computed(OPERATORS[type(op)], self.number(left, path), self.number(right, path))
            case ast.Name(id=name):
                return self.value(self.assigned(name), path)
            case _:
                raise Unknown

    def pairs(self, given: Any, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the keys of a mapping whose values are known; the others are noted."""
        for key, value in given:
            if key is None:
                inner = self.value(value, path)
                if not isinstance(inner, dict):
                    raise Unknown
                yield from inner.items()
                continue
            name = self.value(key, path)
            if not isinstance(name, str):
                raise Unknown
            here = f"{path}.{name}" if path else name
            try:
                yield name, self.value(value, here)
            except Unknown:
                self.left_out.append(here)

    def number(self, node: ast.expr, path: str) -> Any:
        """Return a number. Raises Unknown."""
        found = self.value(node, path)
        if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > LARGEST:
            raise Unknown
        return found

    @staticmethod
    def computed(of: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """Return the result of an operator. Raises Unknown."""
        try:
            return of(left, right)
        except ArithmeticError:
            raise Unknown from None

    def assigned(self, name: str) -> ast.expr:
        """Return the only value of a name. Raises Unknown. A mapping may get further keys later, which is noted."""
        values = self.code.assigned.get(name, [])
        is_mapping = len(values) == 1 and isinstance(values[0], ast.Dict)
        if len(values) != 1 or name in self.code.unpacked or (name in self.code.changed and not is_mapping):
            raise Unknown
        self.changed = self.changed or name in self.code.changed
        return values[0]
