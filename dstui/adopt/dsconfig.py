"""Read a bare ds_config.json as its readers do. Pure: returns the configuration and what is wrong with its form.

DeepSpeed reads hjson, which accepts comments, trailing commas, a byte-order mark and unquoted words. transformers and accelerate read
strict JSON, which refuses all of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dstui.adopt.positions import Position, Positions, positions
from dstui.base.dataclass import dataclass
from dstui.base.limits import MAX_DIGITS, MAX_LISTED, LimitError, parse_float, parse_integer
from dstui.plan.catalogue import release
from dstui.plan.finding import Finding, Fix
from dstui.plan.scalars import resolve

MEANT = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
"""Words that hjson reads as strings -> the value that was meant."""


class ConfigError(Exception):
    """The text is not a configuration. Holds a sentence and the position."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass(frozen=True)
class DsConfig:
    """A configuration and its findings."""

    config: dict[str, Any]
    """Numbers keep their spelling."""
    integration: str
    findings: list[Finding] = field(default_factory=list)
    """The problems of the file's form."""
    places: Positions = field(default_factory=Positions)
    strict: bool = True
    """True if strict JSON readers accept it."""

    @property
    def doubtful(self) -> list[Finding]:
        """Return the findings about form that may hide a setting: an imported Plan would not show them."""
        return [finding for finding in self.findings if finding.code in ("DS023", "DS025")]

    def line_of(self, path: str) -> int | None:
        """Return the line of a dotted path."""
        return self.places.line_of(path)


def read_dsconfig(text: str, integration: str | None = None, *, mark: bool = False) -> DsConfig:
    """Read a file's text. `mark`: it began with a byte-order mark. Raises ConfigError if no reader accepts it.

    Without an integration, assume the Trainer if some "auto" must be filled in, else plain DeepSpeed.
    """
    try:
        places = positions(text)
    except LimitError as error:
        raise ConfigError(error.message, error.line, error.column) from None
    strict, problem = _strict(text)
    if (
        problem is None
        and integration in (None, "deepspeed")
        and not holds_auto(strict)
        and re.search(r"[:\[,]\s*-?(NaN|Infinity)\b", text)
    ):
        at = re.search(r"-?(NaN|Infinity)", text)
        problem = json.JSONDecodeError("JSON has no NaN and no Infinity", text, at.start() if at else 0)
    config = _as_spelled(_hjson(text, problem), "", places.numbers) if problem else strict
    if not isinstance(config, dict):
        raise ConfigError(f"{_named(config)} instead of an object {{…}}, which a DeepSpeed configuration is", 1, 1)
    reader = integration or ("trainer" if holds_auto(_without_own_auto(config)) else "deepspeed")
    found = DsConfig(config, reader, [], places, not problem)
    if problem or mark:
        found.findings.append(_not_strict(found, problem, mark))
    found.findings.extend(_bare_words(found) if problem else [])
    found.findings.extend(_twice(found))
    found.findings.extend(_endless(found, config, "")[:MAX_LISTED])
    return found


def holds_auto(value: Any) -> bool:
    """Return whether any value is "auto"."""
    if isinstance(value, Mapping):
        return any(map(holds_auto, value.values()))
    return isinstance(value, str) and value == "auto"


def _without_own_auto(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the configuration without each "auto" that DeepSpeed itself accepts, as for ZenFlow's keys."""
    known, found = release(), dict[str, Any]()
    for name, value in config.items():
        key = known.key(f"{before}{name}")
        if isinstance(value, Mapping):
            found[name] = _without_own_auto(value, f"{before}{name}.")
        elif not (value == "auto" and key is not None and key.default == "auto"):
            found[name] = value
    return found


def _named(value: Any) -> str:
    names = {list: "a list", str: "a word", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _strict(text: str) -> tuple[Any, json.JSONDecodeError | None]:
    """Parse the text as strict JSON, or return the error."""
    try:
        return json.loads(text, parse_int=resolve, parse_float=resolve), None
    except json.JSONDecodeError as error:
        return None, error
    except LimitError as error:
        raise ConfigError(error.message, *_place_of_digits(text)) from None


def _place_of_digits(text: str) -> tuple[int, int]:
    """Return line and column of the first number that is too long."""
    found = re.search(rf"(?<![^\s:,\[])[\d.eE+-]{{{MAX_DIGITS + 1},}}", text)
    at = found.start() if found else 0
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _hjson(text: str, problem: json.JSONDecodeError) -> Any:
    """Parse the text as DeepSpeed does. Raises ConfigError."""
    import hjson

    try:
        return _plain(hjson.loads(text, parse_int=parse_integer, parse_float=parse_float))
    except LimitError as error:
        raise ConfigError(error.message, *_place_of_digits(text)) from None
    except hjson.HjsonDecodeError as error:
        line, column = (problem.lineno, problem.colno) if problem.lineno else (error.lineno, error.colno)
        reported = problem.msg if problem.msg.startswith("JSON") else problem.msg.lower()
        message = f"not JSON, nor what DeepSpeed can read: {_hint(text, line) or reported}"
        raise ConfigError(message, line, column) from None
    except OverflowError:
        raise ConfigError("a number that is too large") from None
    except (ValueError, LookupError):  # hjson reads past the end of some texts
        raise ConfigError("not JSON, nor what DeepSpeed can read", problem.lineno, problem.colno) from None


def _hint(text: str, line: int) -> str:
    here = text.splitlines()[line - 1] if 0 < line <= len(text.splitlines()) else ""
    if any(f": {word}" in here for word in ("True", "False", "None", "NaN")):
        return "JSON writes true, false and null, and has no NaN"
    if "<<" in here or "${" in here or "{{" in here:
        return "a placeholder that was not filled in"
    return ""


def _plain(value: Any) -> Any:
    """Convert hjson's ordered dictionaries to plain ones."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _as_spelled(value: Any, path: str, numbers: Mapping[str, str]) -> Any:
    """Return the values with numbers in the spelling of the text."""
    if isinstance(value, Mapping):
        return {name: _as_spelled(item, f"{path}.{name}" if path else name, numbers) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_spelled(item, f"{path}.{index}", numbers) for index, item in enumerate(value)]
    spelled = resolve(numbers[path]) if path in numbers and not isinstance(value, (str, bool)) else value
    return spelled if spelled == value else value


def _not_strict(found: DsConfig, problem: json.JSONDecodeError | None, mark: bool) -> Finding:
    """Return the finding for JSON extensions that only DeepSpeed accepts."""
    addition = "a comment" if found.places.comments else "a trailing comma, a word without quotes or the like"
    what = "begins with a byte-order mark" if mark and not problem else f"is not strict JSON: {addition}"
    place = Position(problem.lineno, problem.colno) if problem else Position(1, 1)
    fix = _clean(found, "write it as strict JSON")
    if found.integration == "deepspeed":
        why = "DeepSpeed reads hjson and accepts it; transformers, accelerate and most tools do not"
        return Finding("DS024", "info", "", f"the file {what}", why, line=place.line, column=place.column, fix=fix)
    who = "the Trainer" if found.integration == "trainer" else "accelerate"
    why = f"json.decoder.JSONDecodeError: {problem.msg}" if problem else "JSONDecodeError: Unexpected UTF-8 BOM"
    return Finding("DS024", "error", "", f"the file {what}, and {who} reads strict JSON", why, "parse", place.line, place.column, fix)


def _with_words_of_json(value: Any) -> Any:
    """Convert words that hjson read as strings to the values that were meant."""
    if isinstance(value, Mapping):
        return {name: _with_words_of_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_words_of_json(item) for item in value]
    bare = value.rstrip(" ,") if isinstance(value, str) else value
    return MEANT[bare] if isinstance(bare, str) and bare in MEANT else value


def _bare_words(found: DsConfig) -> list[Finding]:
    """Return findings for unquoted words, which hjson reads as strings up to the end of their line."""
    findings, fix = [], _clean(found, "write it as strict JSON")
    for path, place, word in found.places.words[:MAX_LISTED]:
        shown = word.strip()[:40]
        message = f"{path} becomes the string {shown!r}, to the end of its line"
        why = "without quotes hjson silently reads a word as a string"
        findings.append(Finding("DS025", "warning", path, message, why, line=place.line, column=place.column, fix=fix))
    return findings


def _clean(found: DsConfig, text: str) -> Fix:
    return Fix(text, rewrite=json.dumps(_with_words_of_json(found.config), indent=2) + "\n")


def _endless(found: DsConfig, value: Any, path: str) -> list[Finding]:
    """Return findings for numbers that overflow, such as 1e999, on which DeepSpeed's reader fails."""
    if isinstance(value, Mapping):
        return [finding for name, item in value.items() for finding in _endless(found, item, f"{path}.{name}" if path else name)]
    if not isinstance(value, float) or abs(value) != float("inf") or found.integration != "deepspeed":
        return []
    why = "DeepSpeed: cannot convert float infinity to integer (from hjson, which reads the file)"
    return [Finding("DS029", "error", path, f"{path} is too large to be a number", why, "parse", found.line_of(path))]


def _twice(found: DsConfig) -> list[Finding]:
    """Return findings for duplicate keys: DeepSpeed refuses them, Python's json takes the last."""
    findings, fix = [], _clean(found, "write it with the last one only")
    for path, place in found.places.again[:MAX_LISTED]:
        first = found.places.keys[path].line
        message = f"{path} is given a second time (first on line {first})"
        name = path.rpartition(".")[2]
        if found.integration == "deepspeed":
            why = f"DeepSpeed: Duplicate keys in DeepSpeed config: ['{name}']"
            findings.append(Finding("DS023", "error", path, message, why, "parse", place.line, place.column, fix))
        else:
            why = "Python's json silently uses the last one"
            findings.append(Finding("DS023", "warning", path, message, why, None, place.line, place.column, fix))
    return findings
