"""Turn a notebook, or cells pasted from one, into the shell text that they would run: `!command`, %cd, %env, %%bash. Nothing is executed.

Source: IPython's documentation, "Built-in magic commands" and "System shell access".
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from dstui.adopt.shell.build_files import translated

MARKED = re.compile(r"(?m)^[ \t]*(?:!(?=[\w./~])|%%(?:bash|sh)\b)")
"""A line of a cell that a shell runs. `! command` is the shell's own negation."""
PASTED = re.compile(r"(?m)^(?=%%\w|!\w|%(?:cd|env|set_env)[ \t])")
"""Where a pasted cell may begin: the paste has no bounds between cells."""
CELL = re.compile(r"%%(\w+)[ \t]*([^\n]*)\n?")
"""The magic that says what a whole cell is."""
FOLDER = re.compile(r"%cd[ \t]+(.+)")
EXPORT = re.compile(r"""%(?:set_)?env[ \t]+(\w+)(?:=|[ \t]+)(.*)|os\.environ\[['"](\w+)['"]\][ \t]*=[ \t]*(.*)""")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)[ \t]*=(?!=)[ \t]*(.*)", re.DOTALL)
LITERAL = re.compile(r"""'([^'\\\n]*)'|"([^"\\\n]*)"|(-?[\d.]+)""")
NAME = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")
"""A variable of Python in a shell command."""
END = "END_OF_THE_CELL"


def as_commands(text: str) -> str:
    """Return the shell text of a notebook or of pasted cells; other texts as they are."""
    cells = _cells(text)
    if cells is None and (text.startswith("#!") or not MARKED.search(text)):
        return text
    return "".join(map(_of_cell, PASTED.split(text) if cells is None else cells))


def _cells(text: str) -> list[str] | None:
    """Return the texts of a notebook's code cells; None if the text is no notebook."""
    if not text.lstrip().startswith("{") or '"cells"' not in text:
        return None
    try:
        cells: Any = json.loads(text).get("cells")
    except (ValueError, RecursionError):
        return None
    found = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"] if isinstance(cells, list) else []
    sources = [cell.get("source") for cell in found]
    return ["".join(map(str, source)) if isinstance(source, list) else str(source) for source in sources]


def _of_cell(cell: str) -> str:
    magic = CELL.match(cell)
    if magic is None or magic[1] in ("capture", "time"):
        return translated(cell[magic.end() :] if magic else cell, _of_line)
    body = cell[magic.end() :].rstrip("\n")
    if magic[1] in ("bash", "sh"):
        return f"(\n{body}\n)\n"
    if magic[1] == "writefile" and magic[2].strip():
        return f"cat > {shlex.quote(magic[2].split()[-1])} <<'{END}'\n{body}\n{END}\n"
    return "\n" * (cell.count("\n") or 1)


def _of_line(whole: str) -> str:
    """Return a line, with those that continue it, as the shell's: a command, a folder, a variable; an empty line for other Python."""
    line = whole.strip()
    if line.startswith("!"):
        command = _with_names(line.lstrip("!"))
        return f"{command}\n" if "#" in command else f"( {command} )\n"
    if found := FOLDER.fullmatch(line):
        return f"cd {_with_names(found[1])}\n"
    if found := EXPORT.fullmatch(line):
        value = found[2] if found[1] else _literal(found[4])
        return f"export {found[1] or found[3]}={shlex.quote(value)}\n" if value is not None else "\n"
    if (found := ASSIGNMENT.fullmatch(line)) and not whole[:1].isspace():
        value = _literal(found[2])
        return f"unset {found[1]}\n" if value is None else f"{found[1]}={shlex.quote(value)}\n"
    return "\n"


def _with_names(text: str) -> str:
    """Return a command with the shell's own spelling of variables."""
    return NAME.sub(r"${\1}", text)


def _literal(text: str) -> str | None:
    """Return the value of a text or number of Python; None for another expression."""
    found = LITERAL.fullmatch(text.partition("  #")[0].strip())
    return None if found is None else next(group for group in found.groups() if group is not None)
