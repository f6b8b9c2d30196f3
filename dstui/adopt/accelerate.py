"""Read an accelerate YAML as accelerate does: with PyYAML, in YAML 1.1 (`no` is false). Pure: returns values and positions.

Text that was copied from a web page is repaired first: Markdown's backslashes, commas at line ends, lost newlines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

import yaml

from dstui.adopt.dsconfig import ConfigError
from dstui.base.dataclass import dataclass
from dstui.plan.document import DocumentError, Loader, walk_nodes


@dataclass(frozen=True)
class AccelerateConfig:
    """The values of a file with their positions."""

    config: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)
    again: list[tuple[str, int]] = field(default_factory=list)
    """Duplicate keys and their lines. accelerate uses the last one."""

    def line_of(self, path: str) -> int | None:
        """Return the line of a dotted path, or of the nearest section around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path.rpartition(".")[0]
        return None


def read_accelerate(text: str) -> AccelerateConfig:
    """Read a file's text. Raises ConfigError if accelerate could not read it."""
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        for _ in walk_nodes(root):
            pass
        config = loader.construct_document(root) if root is not None else None
    except DocumentError as error:
        raise ConfigError(error.message, error.line, error.column) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        hint = _glued(text, mark.line) if mark else ""
        at = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise ConfigError(hint or f"not YAML: {error.problem}", *at) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(config, dict):
        raise ConfigError("the file is empty" if config is None else "not a mapping of keys to values, as an accelerate configuration is")
    found = AccelerateConfig({str(name): value for name, value in config.items()})
    _places(root, "", found)
    return found


def _glued(text: str, line: int) -> str:
    """Describe two keys on one line, the result of a newline lost on a web page."""
    here = text.splitlines()[line] if line < len(text.splitlines()) else ""
    before, brace, after = here.partition("}")
    return f"two keys on one line: start a new line before {after.split(':')[0]!r}" if brace and ":" in before and ":" in after else ""


def _places(node: Any, prefix: str, found: AccelerateConfig) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if path in found.lines:
            found.again.append((path, key.start_mark.line + 1))
        found.lines[path] = key.start_mark.line + 1
        _places(value, path + ".", found)


ESCAPE = re.compile(r"\\(?=[_*\[\]#.{}()+!-])")
"""A backslash that Markdown puts before a special character."""
COMMA = re.compile(r"^(?P<line>\s*[\w-]+\s*:\s+[^\s\[{'\"#][^#,\[{]*?),[ \t]*$", re.MULTILINE)
"""A single value followed by a comma, as in JSON."""
GLUED = re.compile(r"^(?P<indent>[ \t]*)(?P<first>[\w-]+[ \t]*:[ \t]*\{\})[ \t]*(?=[A-Za-z_][\w-]*[ \t]*:)", re.MULTILINE)
"""Two keys on one line, the first with an empty section."""
SPACE = re.compile("[\u00a0\u2002\u2003\u2009]")
"""Typographic spaces, which YAML does not treat as blanks."""

REPAIRS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str], str], ...] = (
    (ESCAPE, "", "backslashes before _ and the like, which are Markdown, were removed"),
    (SPACE, " ", "special spaces of a web page were replaced"),
    (COMMA, r"\g<line>", "commas at the ends of lines were removed: they are not YAML"),
    (GLUED, lambda match: f"{match['indent']}{match['first']}\n{match['indent']}", "two keys on one line were split into two lines"),
)


def repaired(text: str) -> tuple[str, list[str]]:
    """Repair the text, and return a sentence for each kind of repair."""
    sentences = []
    for pattern, new, sentence in REPAIRS:
        text, count = pattern.subn(new, text)
        sentences += [sentence] if count else []
    return text, sentences
