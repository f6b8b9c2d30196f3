"""Turn a notebook, or cells pasted from one, into shell text: `!` lines, `%%bash` cells, `%env` and `%cd`. Nothing is executed."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dstui.adopt.shell.pages import blocks_of
from dstui.adopt.signs import is_launch

PASTED = re.compile(r"(?m)^(?:!(?=[\w./~])|%%(?:bash|sh)\b)")
"""A line that only a cell has: a script negates with `! command`."""
PART = re.compile(r"(?m)^(?=%%\w|!\w|%(?:cd|env|set_env)[ \t])")
"""Possible beginnings of a pasted cell: a paste has no bounds between cells."""
SHELL_CELL = re.compile(r"%%(?:bash|sh|script (?:bash|sh))\b[^\n]*\n?")
FILE_CELL = re.compile(r"%%(?:writefile|file)[ \t]+(?P<append>-a[ \t]+)?(?P<path>[^\n]+)\n?")
ENV = re.compile(r"%(?:set_)?env[ \t]+(?P<name>\w+)[ \t]*[= \t][ \t]*(?P<value>.*)")
ENVIRON = re.compile(r"""os\.environ\[(['"])(?P<name>\w+)\1\][ \t]*=[ \t]*(?P<value>.+)""")
ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)[ \t]*=(?!=)[ \t]*(?P<value>.+)")
OF_IPYTHON = re.compile(r"(?m)^(?P<depth>[ \t]*)[!%].*(?:\\\n.*)*$")
"""A line of a cell that is not Python, with those that continue it."""
LONGEST = 20_000
"""Characters of an f-string."""
TRIPLE = re.compile(r"[fFrRuU]{0,2}(\"{3}|'{3})")
EXPANDED = re.compile(r"(?<![${])\{(?P<name>[A-Za-z_]\w*)\}(?!\})|\$(?P<plain>[A-Za-z_]\w*)")
"""A variable of Python in a shell line. IPython writes its value there; `$NAME` may also be one of the shell."""


def notebook_as_shell(text: str) -> str:
    """Return the shell text of a notebook or of pasted cells; other texts as they are."""
    if PASTED.search(text) and not text.startswith("#!"):
        known = dict[str, str]()
        return "\n".join(_cell(cell, known) for cell in PART.split(text)) + "\n"
    cells = _cells(text)
    if cells is None:
        return text
    known = dict[str, str]()
    commands = "\n".join(_cell(code, known) for code in _sources(cells, "code")) + "\n"
    if is_launch(commands):
        return commands
    pages = blocks_of("\n\n".join(("A page.", *_sources(cells, "markdown"))))
    return commands + "".join(f"{text}\n" for block in pages if is_launch(text := "\n".join(block.lines)))


def python_of_notebook(text: str) -> str:
    """Return the Python of a notebook's cells without lines for IPython; "" for other texts."""
    code = (cell for cell in _sources(_cells(text), "code") if not cell.startswith("%%"))
    return "\n".join(OF_IPYTHON.sub(r"\g<depth>pass", cell) for cell in code)


def _cells(text: str) -> Any:
    """Return the cells of a notebook; None for other texts."""
    if not text.lstrip().startswith("{") or '"nbformat"' not in text:
        return None
    try:
        return json.loads(text).get("cells")
    except (ValueError, RecursionError):
        return None


def _sources(cells: object, kind: str) -> Iterator[str]:
    """Yield the texts of cells of a kind."""
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == kind:
            source = cell.get("source")
            yield "".join(map(str, source)) if isinstance(source, list) else str(source)


def _cell(code: str, known: dict[str, str]) -> str:
    """Return the shell text of a cell. `known`: the variables of Python whose value is a literal."""
    code = code.rstrip("\n")
    if found := SHELL_CELL.match(code):
        return f"(\n{code[found.end() :]}\n)"
    if found := FILE_CELL.match(code):
        return f"cat >{'>' if found['append'] else ''} {found['path'].strip()} <<'DSTUI_CELL'\n{code[found.end() :]}\nDSTUI_CELL"
    return "\n".join(_lines(code, known))


def _lines(code: str, known: dict[str, str]) -> Iterator[str]:
    """Yield the shell lines of a cell of Python, each with the lines that continue it."""

    def value_of(found: re.Match[str]) -> str:
        return known.get(found["name"] or found["plain"], f"${{{found['name']}}}" if found["name"] else found[0])

    lines = iter(code.split("\n"))
    for line in lines:
        command = line.strip()
        while command[:1] in ("!", "%") and command.endswith("\\") and (more := next(lines, None)) is not None:
            command = f"{command}\n{more.rstrip()}"
        if command.startswith("!"):
            text = EXPANDED.sub(value_of, command.lstrip("!"))
            yield f"( {text}\n)"
        elif command.startswith("%cd"):
            yield EXPANDED.sub(value_of, command[1:])
        elif found := ENV.fullmatch(command):
            yield f"export {found['name']}={shlex.quote(EXPANDED.sub(value_of, found['value']))}"
        elif (found := ENVIRON.fullmatch(command)) and (value := _literal(found["value"])) is not None:
            yield f"export {found['name']}={shlex.quote(value)}"
        elif found := ASSIGNED.match(line):
            known.pop(found["name"], None)
            if (value := _literal(_whole(found["value"], lines), known)) is not None:
                known[found["name"]] = value


def _whole(value: str, lines: Iterator[str]) -> str:
    """Return a value with the lines up to the end of a text in three quotes."""
    opened = TRIPLE.match(value)
    if opened is None or value.count(opened[1]) > 1:
        return value
    found = [value]
    for line in lines:
        found.append(line)
        if opened[1] in line:
            break
    return "\n".join(found)


def _formatted(value: str, known: Mapping[str, str]) -> str | None:
    """Return an f-string with known values; what is unknown becomes a variable of the shell. None for other expressions."""
    try:
        body = ast.parse(value.strip(), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(body, ast.JoinedStr):
        return None
    parts = []
    for part in body.values:
        inner = part.value if isinstance(part, ast.FormattedValue) else part
        if isinstance(inner, ast.Constant):
            parts.append(str(inner.value))
        else:
            named = next((node for node in ast.walk(inner) if isinstance(node, ast.Name | ast.Attribute)), None)
            name = named.id if isinstance(named, ast.Name) else named.attr if named else "VALUE"
            parts.append(known.get(name, f"${{{name}}}") if isinstance(inner, ast.Name) else f"${{{name.upper()}}}")
    return "".join(parts)


def _literal(value: str, known: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Return the text of a literal of Python; None for other expressions."""
    if value[:2] in ('f"', "f'") and len(value) > LONGEST:
        return None
    if value[:1] in ("f", "F") and (text := _formatted(value, known)) is not None:
        return text
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return literal if isinstance(literal, str) else value.partition("#")[0].strip()
