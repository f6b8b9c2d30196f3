"""Turn the tasks of a project into the shell text that they run: TOML (pixi, poe, pdm, hatch), tox.ini, a justfile. Nothing is executed.

Each task is a shell of its own, and line numbers stay the same.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from dstui.adopt.signs import is_launch
from dstui.base.toml import parsed_toml

TABLES = ("tasks", "scripts")
"""Tables of tasks: [tasks], [tool.pixi.tasks], [tool.poe.tasks], [tool.pdm.scripts], [tool.hatch.envs.NAME.scripts]."""
COMMANDS = ("cmd", "shell", "command", "composite")
LONGEST = 200_000
SECTION = re.compile(r"\[[^\]\n]+\][ \t]*")
SETTING = re.compile(r"(?P<name>[\w-]+)[ \t]*\+?=[ \t]*(?P<value>.*)")
POSITIONAL = re.compile(r"\{posargs(?::([^{}]*))?\}")
RECIPE = re.compile(r"@?(?P<name>[A-Za-z_][\w-]*)(?P<parameters>[^:\n]*):(?!=)[^\n]*")
PARAMETER = re.compile(r"""(?P<many>[*+$]*)(?P<name>[A-Za-z_][\w-]*)(?:=(?P<default>"[^"\n]*"|'[^'\n]*'|\S+))?""")
VARIABLE = re.compile(r"(?P<export>export[ \t]+)?(?P<name>[A-Za-z_][\w-]*)[ \t]*:=[ \t]*(?P<value>.*)")
INTERPOLATED = re.compile(r"\{\{[ \t]*([A-Za-z_][\w-]*)[^{}\n]*\}\}")


def tasks_as_shell(text: str, name: str) -> str:
    """Return the shell text of a file of tasks, by its name; other texts as they are."""
    if len(text) > LONGEST:
        return text
    base = posixpath.basename(name).lower()
    if base.endswith(".toml"):
        return _of_toml(text)
    if base == "tox.ini":
        return _in_shells(_of_tox(text))
    if base in ("justfile", ".justfile") or base.endswith(".just"):
        return _in_shells(_of_just(text))
    return text


def _of_toml(text: str) -> str:
    lines = [""] * (text.count("\n") + 1)
    for command in _tasks(parsed_toml(text), "", within=False):
        at = _line_of(text, command[0])
        lines[at] = "; ".join(filter(None, (lines[at], f"( {command[1]}{' '.join(command[0].split(chr(10)))} )")))
    return "\n".join(lines) + "\n"


def _line_of(text: str, command: str) -> int:
    """Return the index of the line with the beginning of a command."""
    found = re.search(r"[\s'\",\[]+".join(map(re.escape, command.split()[:2])), text)
    return text.count("\n", 0, found.start()) if found else 0


def _tasks(node: Any, before: str, *, within: bool) -> Iterator[tuple[str, str]]:
    """Yield the commands of tasks that start training, each with what stands before it."""
    if isinstance(node, str):
        if within and is_launch(node):
            yield node.replace("\\\n", " "), before
    elif isinstance(node, list):
        for item in node:
            yield from _tasks(item, before, within=within)
    elif isinstance(node, Mapping):
        given = next((node[name] for name in COMMANDS if name in node), None) if within else None
        if given is not None:
            words = given if isinstance(given, list) and not any(is_launch(str(one)) for one in given) else None
            command = shlex.join(map(str, words)) if words else given
            yield from _tasks(command, before + _before(node), within=True)
            return
        for name, value in node.items():
            yield from _tasks(value, before, within=within or name in TABLES)


def _before(task: Mapping[str, Any]) -> str:
    """Return the variables and the folder of a task as shell text."""
    env, folder = task.get("env"), task.get("cwd")
    found = [f"export {name}={shlex.quote(str(value))};" for name, value in (env.items() if isinstance(env, Mapping) else ())]
    found += [f"cd {shlex.quote(folder)};"] if isinstance(folder, str) else []
    return "".join(f"{one} " for one in found)


def _in_shells(lines: Iterator[str | None]) -> str:
    """Return lines with a shell for each part; None begins one, and stays an empty line."""
    found, is_open = list[str](), False
    for line in lines:
        if line is None:
            found.append(") ; (:" if is_open else "(:")
            is_open = True
        else:
            found.append(line)
    return "\n".join([*found, ")" if is_open else ""]).replace("(:\n", "( :\n") + "\n"


def _of_tox(text: str) -> Iterator[str | None]:
    key = ""
    for line in text.split("\n"):
        words = line.strip()
        if SECTION.fullmatch(line):
            key = ""
            yield None
            continue
        if line[:1] not in (" ", "\t", "#", "") and (found := SETTING.fullmatch(line)):
            key, words = found["name"], found["value"].strip()
        words = POSITIONAL.sub(lambda match: match[1] or "", words)
        if key in ("commands", "commands_pre"):
            yield words.removeprefix("- ")
        elif key in ("setenv", "set_env") and (found := SETTING.fullmatch(words)):
            yield f"export {found['name']}={shlex.quote(found['value'].strip())}"
        elif key in ("changedir", "change_dir") and words:
            yield f"cd {shlex.quote(words.replace('{toxinidir}/', ''))}"
        else:
            yield ""


def _of_just(text: str) -> Iterator[str | None]:
    lines = text.split("\n")
    for at, line in enumerate(lines):
        inside = line[:1] in (" ", "\t")
        if inside:
            yield INTERPOLATED.sub(lambda found: f"${{{_name(found[1])}}}", line.strip().removeprefix("@").removeprefix("-"))
        elif found := VARIABLE.fullmatch(line):
            yield f"{found['export'] or ''}{_name(found['name'])}={_just_value(found['value'])}"
        elif (found := RECIPE.fullmatch(line)) and "".join(lines[at + 1 : at + 2])[:1] in (" ", "\t"):
            values = [one for one in PARAMETER.finditer(found["parameters"]) if one["default"] or "*" in one["many"]]
            yield None
            lines[at + 1] = (
                "  " + "".join(f"{_name(one['name'])}={one['default'] or ''}; " for one in values) + lines[at + 1].strip().lstrip("@-")
            )
        else:
            yield ""


def _name(name: str) -> str:
    return name.replace("-", "_")


def _just_value(value: str) -> str:
    """Return a text in quotes, or what a backquoted command prints; else a name that stays open."""
    value = value.strip()
    if re.fullmatch(r"'[^']*'|\"[^\"$`]*\"|`[^`]*`|\d+", value):
        return value
    return '"${JUST_VALUE}"'
