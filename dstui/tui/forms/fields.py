"""Form fields as data: a field shows and edits a dotted path of the Plan, and an answer is a few edits.

Nothing here knows the screen. Help texts and defaults are not defined here: they are the Plan's own (`dstui.plan.model.help_of`) and
DeepSpeed's (`dstui.plan.catalogue`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Literal

from dstui.base.dataclass import dataclass
from dstui.base.limits import LimitError
from dstui.tui.session.state import UNSET, Edit

if TYPE_CHECKING:
    from dstui.tui.kit.text_row import Row
    from dstui.tui.session.state import State

Kind = Literal["choice", "toggle", "number", "numbers", "text", "words", "pairs", "patterns", "grid"]


Disabled = Callable[["State"], str]
"""Returns why something is impossible now; "" if it is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a choice: its label and the value that it writes."""

    value: Any
    label: str
    says: str = ""
    figure: str = ""
    """Its cost here, if known, shown instead of the description."""
    severity: str = ""
    """The severity of the cost: ok, warning or error."""
    edits: tuple[Edit, ...] | None = None
    """None means that the field's path gets `value`."""
    disabled: Disabled | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. `path`, dotted from the Plan's root, identifies it."""

    path: str
    label: str
    kind: Kind = "text"
    options: tuple[Option, ...] = ()
    spread: bool = False
    """True if a choice always shows all options: for the main question of a step."""
    title: str = ""
    """A heading over this field."""
    columns: str = ""
    """The titles above the right ends of its options."""
    below: Callable[[State, int], list[Row]] | None = None
    """Informative rows below it, for a width in cells. A small screen shows them below all fields, so that they do not push fields away."""
    unit: str = ""
    default: Any = UNSET
    """The behaviour if nothing is set; UNSET means to look in the model and the catalogue."""
    disabled: Disabled | None = None
    read: Callable[[State], Any] | None = None
    """Returns the current answer, if it is not simply the value at `path`."""
    write: Callable[[State, Any], tuple[Edit, ...]] | None = None
    """Returns the edits of an answer, if they depend on more than the answer."""
    owns: tuple[str, ...] = ()
    """Further paths that this field edits, for jumping to it."""
    says: Callable[[State], str] | None = None
    """Returns a remark behind the value."""
    selects_model: bool = False
    """True if it edits nothing: its answer is the model whose configuration the forms are about."""
    help: Callable[[State], str] | None = None
    """Returns the help text, for fields that are not keys of the Plan."""

    def unit_of(self, value: Any) -> str:
        """Return the unit behind a value, in the singular for one."""
        return self.unit.removesuffix("es" if self.unit.endswith("ches") else "s") if value == 1 else self.unit

    def value(self, state: State) -> Any:
        """Return the Plan's value; UNSET if the Plan has none."""
        return self.read(state) if self.read else state.plan.get(self.path, UNSET)

    def edits(self, state: State, value: Any) -> tuple[Edit, ...]:
        """Return the edits that an answer stands for."""
        if self.write:
            return self.write(state, value)
        chosen = next((o for o in self.options if o.value == value), None)
        return chosen.edits if chosen and chosen.edits is not None else ((self.path, value),)


def why_fixed(field: Field, state: State) -> str:
    """Return why a field cannot be edited now: because of its step, or because the site locks its value; else ""."""
    from dstui.plan.locks import lock_of

    lock = lock_of(state.plan, state.plan.absolute(field.path)) if state.plan.beneath.locks else None
    if lock is not None and lock.allows(state.plan.get(field.path)):
        return f"{format_value(lock.exact[0])} · locked: {lock.reason or 'by the site'}"
    return field.disabled(state) if field.disabled else ""


def default_of(field: Field) -> Any:
    """Return the value that applies if the Plan has none: the field's own, the model's, or the catalogue's; UNSET if it is unknown."""
    if field.default is not UNSET:
        return field.default
    if any(option.value is UNSET for option in field.options):
        return UNSET
    if field.path.startswith("deepspeed."):
        from dstui.plan.catalogue import lookup

        key = lookup(field.path.removeprefix("deepspeed."))
        return UNSET if key is None else key.default
    return _model_default(field.path)


def _model_default(path: str) -> Any:
    from dstui.plan.model import field_of

    found = field_of(path)
    return UNSET if found is None or found.default is MISSING else found.default


def help_for(path: str) -> str:
    """Return one or two sentences of help on any path of the Plan."""
    if path.startswith("deepspeed."):
        from dstui.plan.catalogue import lookup

        key = lookup(path.removeprefix("deepspeed."))
        return key.help if key else "dstui's catalogue has no such key; it is kept as it is."
    from dstui.plan.model import help_of

    return help_of(path)


def why_default(path: str) -> str:
    """Return why the default of a path of the Plan is what it is, or "" if no reason is recorded."""
    if path.startswith("deepspeed."):
        from dstui.plan.catalogue import lookup

        key = lookup(path.removeprefix("deepspeed."))
        return key.why if key else ""
    from dstui.plan.model import reason_for_default

    return reason_for_default(path)


# Values as displayed and typed text


def format_value(value: Any) -> str:
    """Format a value for a form: numbers as they were spelled, lists separated by spaces."""
    if value is None or value is UNSET or value in ((), [], {}):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return editable_text(value)


def editable_text(value: Any) -> str:
    """Return the text of a value with which editing starts."""
    if value is None or value is UNSET:
        return ""
    if isinstance(value, (list, tuple)):
        import shlex

        return shlex.join(str(v) for v in value) if all(isinstance(v, (str, int, float)) for v in value) else _flow(value)
    if hasattr(value, "items"):
        plain = all(isinstance(v, (str, int, float, bool)) for v in value.values())
        return ", ".join(f"{k}: {v}" for k, v in value.items()) if plain else _flow(value)
    return str(getattr(value, "spelling", value))


def _flow(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


class NotThat(ValueError):
    """The typed text is not a valid value of this field; the message says why."""


def parse_value(field: Field, text: str) -> Any:
    """Parse typed text as a value of the field; an empty text removes it. Raises NotThat."""
    text = text.strip()
    if not text:
        return UNSET
    try:
        return _READERS[field.kind](text)
    except LimitError as error:
        raise NotThat(f"{error.message}.") from None


def _number(text: str) -> Any:
    from dstui.plan.scalars import resolve

    value = resolve(text.replace("_", "").replace(" ", ""))
    if value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotThat(f"{text!r} is not a number; examples: 4, 5e8, 1e-4.")
    return value


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise NotThat(f"{str(error).rstrip('.')}: a quote is not closed.") from None


def _numbers(text: str) -> list[Any]:
    return [_number(part) for part in text.strip("[]").replace(",", " ").split()]


def _pairs(text: str) -> dict[str, Any]:
    from dstui.plan.scalars import resolve

    result: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.strip("{}").split(","))):
        name, colon, value = part.partition(":" if ":" in part else "=")
        if not colon or not name.strip():
            raise NotThat(f"{part!r} is not a pair; write name: value, separated by commas.")
        result[name.strip()] = resolve(value.strip())
    return result


def _patterns(text: str) -> dict[str, str]:
    """Parse `reward: reward=([0-9.]+), kl: kl (.+)`; the expressions may contain colons and commas."""
    names = list(re.finditer(r"(?:^|,\s+)([A-Za-z_][\w./-]*):\s+", text))
    if not names or names[0].start():
        raise NotThat("write name: pattern, separated by commas; as in reward: reward=([-+0-9.e]+)")
    ends = [*(name.start() for name in names[1:]), len(text)]
    return {name[1]: text[name.end() : end].strip() for name, end in zip(names, ends, strict=True)}


_READERS: dict[str, Callable[[str], Any]] = {
    **{"number": _number, "numbers": _numbers, "text": str},
    **{"words": _words, "pairs": _pairs, "patterns": _patterns},
}
