"""The user's settings: one commented YAML file, read tolerantly and written in place. Pure: text in, values and mistakes out.

A mistake costs only the setting that it is in: the others hold, and that one has its default. Every setting is an entry of
`SETTINGS`, from which the first file, its JSON Schema, the palette and the documentation are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from dstui.base.dataclass import dataclass
from dstui.base.text import similar_words
from dstui.plan.document import Document, DocumentError, Path, Reading
from dstui.plan.edit import put_value
from dstui.plan.finding import Finding
from dstui.plan.kinds import describe_value
from dstui.plan.layers import Layer
from dstui.plan.load import PlanError, check_part
from dstui.plan.load import reading as plan_reading
from dstui.plan.scalars import yaml_scalar

LONGEST = 80
"""Characters of a name in a setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, a key at the top of the file. Its default tells what kind of value it takes."""

    name: str
    help: str
    default: bool | str | tuple[str, ...]
    choices: tuple[str, ...] = ()
    """The values of a text; a text without choices takes a name of something else, such as a theme."""

    def refusal(self, value: Any) -> str:
        """Return why a value cannot be used, as a sentence; "" where it can."""
        wanted, fits = self._form(value)
        return "" if fits else f"expected {wanted}, not {describe_value(value)}"

    def _form(self, value: Any) -> tuple[str, bool]:
        if self.choices:
            return f"one of {', '.join(self.choices)}", isinstance(value, str) and value in self.choices
        if isinstance(self.default, bool):
            return "true or false", isinstance(value, bool)
        if isinstance(self.default, str):
            return "a name", is_name(value)
        return "a list of names", isinstance(value, list) and all(map(is_name, value))


def is_name(value: Any) -> bool:
    """Return whether a value is a text of the length of a name."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST


SETTINGS: Final = (
    Setting("theme", "Colours. dstui-high-contrast is easier to read, ansi-dark and ansi-light use the terminal's colours.", "dstui"),
    Setting("wrap", "Wrap long lines of a log, instead of cutting them at the edge.", False),
    Setting("timestamps", "What precedes each line of a log.", "clock", ("clock", "since start", "none")),
    Setting("dashboard", "Plots and GPUs beside the log, where the terminal is wide enough.", True),
    Setting("pinned", "The plots that come first on the dashboard, by the names of their metrics.", ()),
    Setting(
        "bell",
        "When the terminal's bell rings: at the end of each job on the screen, of a failed one, or never.",
        "off",
        ("off", "on", "failed"),
    ),
    Setting("columns", "The columns of the table of runs, in their order; an empty list shows as many as fit.", ()),
    Setting("confirm_stop", "Ask before a job is stopped.", True),
    Setting(
        "confirm_leave", "Ask before leaving with unsaved edits. Without the question they are kept and offered at the next start.", True
    ),
    Setting("confirm_beside", "Ask before a second job is started while one runs.", True),
)
BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}
TOP: Final[Mapping[str, str]] = {
    "version": "The version of this file format: 1.",
    "defaults": "Keys of a Plan, with values for Plans that do not set them.",
    "keys": "The key, or the list of keys, of an action, by the action's name; docs/keys.md lists the names.",
} | {setting.name: setting.help for setting in SETTINGS}
"""The keys at the top of the file, each with what it is for."""


@dataclass(frozen=True)
class UserSettings:
    """The settings of a file, as far as they can be used, and what is wrong with the others."""

    source: str = ""
    layer: Layer | None = None
    """The values beneath every Plan."""
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """By the names of `SETTINGS`; a setting that is not there has its default."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Action -> keys, as they are written."""
    problems: tuple[Finding, ...] = ()
    document: Document | None = None

    def sentence(self, problem: Finding) -> str:
        """Format a problem as `settings.yaml:3:1: theme: what is wrong`."""
        return PlanError([], self.source).sentence(problem)

    def problem(self, path: Path, message: str) -> Finding:
        """Return a finding about a value of the file, with its line."""
        return _finding(self.document, path, message)


def read_settings(text: str, source: str, folder: str) -> UserSettings:
    """Return the settings of a file's text; paths in its `defaults` start from `folder`."""
    document = Document(_begun(text), _reading)
    try:
        data = document.data
    except DocumentError as error:
        path = tuple(error.path)
        problem = Finding("SETTINGS", "error", ".".join(map(str, path)), error.message, when="parse", line=error.line, column=error.column)
        return UserSettings(source, problems=(problem,))
    if not isinstance(data, dict):
        wrong = _finding(document, (), f"settings are keys with values (theme: dstui), not {describe_value(data)}")
        return UserSettings(source, problems=(wrong,), document=document)
    problems = [*_unknown(document, data), *_refused(document, data)]
    layer: Layer | None = Layer("settings", source, folder, document, ("defaults",))
    try:
        check_part(document, ("defaults",), source)
    except PlanError as error:
        problems, layer = [*problems, *error.findings], None
    keys, wrong_keys = _keys(document, data.get("keys"))
    problems = sorted([*problems, *wrong_keys], key=lambda problem: problem.line or 0)
    return UserSettings(source, layer, usable(data), MappingProxyType(keys), tuple(problems), document)


def _begun(text: str) -> str:
    """Return the text with the version if it has only comments."""
    said = any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    return text if said else f"{text.rstrip()}\nversion: 1\n".lstrip()


def usable(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings among these values that can be used."""
    held = {one.name: data[one.name] for one in SETTINGS if data.get(one.name) is not None and not one.refusal(data[one.name])}
    return MappingProxyType(held)


def _reading(path: Path) -> Reading:
    if path[:1] == ("defaults",) and len(path) > 1:
        return plan_reading(path[1:])
    return "text or null" if path[:1] in (("keys",), ("columns",), ("theme",)) else "value"


def _finding(document: Document | None, path: Path, message: str) -> Finding:
    line = document.line_of(path) if document is not None else None
    return Finding("SETTINGS", "error", ".".join(map(str, path)), message, when="parse", line=line or 1)


def _unknown(document: Document, data: Mapping[str, Any]) -> Iterator[Finding]:
    if data.get("version", 1) != 1 or isinstance(data.get("version"), bool):
        yield _finding(document, ("version",), f"{data['version']!r}: this dstui reads version 1")
    for key in data:
        if key not in TOP:
            close = similar_words(str(key), TOP, 1, 0.6)
            hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(TOP)}"
            yield _finding(document, (key,), f"unknown key; {hint}")
    if not isinstance(data.get("keys"), (dict, type(None))):
        yield _finding(document, ("keys",), f"expected a mapping (launch: f9), not {describe_value(data['keys'])}")


def _refused(document: Document, data: Mapping[str, Any]) -> Iterator[Finding]:
    for setting in SETTINGS:
        value = data.get(setting.name)
        if value is not None and (why := setting.refusal(value)):
            yield _finding(document, (setting.name,), f"{why}; {yaml_value(setting.default)} holds instead")


def yaml_value(value: Any) -> str:
    """Return a setting's value as YAML on one line."""
    return f"[{', '.join(map(yaml_scalar, value))}]" if isinstance(value, (list, tuple)) else yaml_scalar(value)


def _keys(document: Document, given: Any) -> tuple[dict[str, tuple[str, ...]], list[Finding]]:
    """Return the keys of actions; what an action is, and what a key, is for the screen to say."""
    keys, wrong = dict[str, tuple[str, ...]](), list[Finding]()
    for name, value in given.items() if isinstance(given, dict) else ():
        listed = value if isinstance(value, list) else [value]
        if listed and all(map(is_name, listed)):
            keys[name] = tuple(listed)
        else:
            wrong.append(
                _finding(document, ("keys", name), f"expected a key or a list of keys (L, ctrl+l, f6), not {describe_value(value)}")
            )
    return keys, wrong


def first_settings(values: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the text of a first file: every setting as a comment with its default, and these values set."""
    lines = [
        "# The settings of dstui. Remove a # to set something; `dstui settings --check` says what is wrong in this file.",
        "# Choices made in dstui are saved here too; your comments are kept.",
        "version: 1",
    ]
    for setting in SETTINGS:
        of = f" One of: {', '.join(setting.choices)}." if setting.choices else ""
        lines += ["", f"# {setting.help}{of}", f"# {setting.name}: {yaml_value(setting.default)}"]
    lines += ["", f"# {TOP['keys']}", "# keys:", "#   launch: f9", "#   undo: [u, ctrl+z]", "", f"# {TOP['defaults']}"]
    text = "\n".join([*lines, "# defaults:", "#   deepspeed:", "#     gradient_clipping: 1.0"]) + "\n"
    for name, value in values.items():
        text = with_setting(text, name, value)
    return text


def with_setting(text: str, name: str, value: Any) -> str:
    """Return the text of the file with a setting changed: nothing else in it changes. Raises EditError or DocumentError.

    A setting that is not there takes the place of the comment with its default, where there is one.
    """
    text = _begun(text)
    document, written = Document(text, _reading), list(value) if isinstance(value, tuple) else value
    if document.node((name,)) is None:
        replaced = re.sub(rf"(?m)^# *{re.escape(name)}:.*$", lambda _: f"{name}: {yaml_value(value)}", text, count=1)
        if replaced != text and Document(replaced, _reading).data == {**document.data, name: written}:
            return replaced
    return put_value(document, (name,), written).text
