"""The shell's own commands, and the programs whose output follows from their words: echo, dirname, seq and the like."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dstui.adopt.shell.shell_state import OPEN, ShellContext, ShellState, as_shown, holes_in
from dstui.adopt.shell.unknowns import Unknowns


class FolderReader(Protocol):
    """What the shell's own commands need of `interpreter.ShellReader`."""

    unknowns: Unknowns

    def is_folder(self, state: ShellState, path: str) -> bool | None:
        """Return whether a folder is there; None where nobody can tell."""


Builtin = Callable[["FolderReader", list[str], ShellState, "str | None"], "bool | None"]
Printing = Callable[[list[str], ShellState, "str | None", ShellContext], "str | None"]
MAX_NUMBERS = 10_000


def printed(name: str, words: Sequence[str], state: ShellState, given: str | None, around: ShellContext) -> str | None:
    """Return what a program prints; None where only running it tells. `given` is its standard input."""
    program = PRINTING.get(name.rpartition("/")[2])
    return program(list(words), state, given, around) if program else None


# ---------------------------------------------------------------- the shell's own


def _cd(reader: FolderReader, words: list[str], state: ShellState, _given: str | None) -> bool | None:
    folder = next((word for word in words if word not in ("-P", "-L", "--")), "")
    if not folder or folder == "-":
        return None
    if reader.is_folder(state, folder) is False:
        reader.unknowns.note(f"cd {as_shown(folder)}: there is no such folder here, and it is read as the current one")
        return None
    state.folder = folder if folder.startswith(OPEN) else posixpath.normpath(posixpath.join(state.folder, folder))
    return True


def _unset(_reading: FolderReader, words: list[str], state: ShellState, _given: str | None) -> bool | None:
    for name in words:
        state.variables.pop(name, None)
        state.exported.discard(name)
    return True


def _set(_reading: FolderReader, words: list[str], state: ShellState, _given: str | None) -> bool | None:
    if "--" in words:
        state.positional = words[words.index("--") + 1 :]
    return True


def _shift(_reading: FolderReader, words: list[str], state: ShellState, _given: str | None) -> bool | None:
    count = int(words[0]) if words and words[0].isdigit() else 1
    state.positional = state.positional[count:]
    return True


def _read(_reading: FolderReader, words: list[str], state: ShellState, given: str | None) -> bool | None:
    """Follow `read NAME`, `read -r -d '' NAME` and `read -a NAME` from a here-document."""
    options, names, rest = set[str](), list[str](), list(words)
    whole = False
    while rest:
        word = rest.pop(0)
        if word in ("-d", "-n", "-N", "-p", "-t", "-u", "-i"):
            whole = whole or (word == "-d" and rest[:1] == [""])
            rest = rest[1:]
        elif word.startswith("-"):
            options.add(word)
        else:
            names.append(word)
    if given is None:
        return False  # nothing is there to read from
    text = given if whole else given.partition("\n")[0]
    if any("a" in option for option in options) and names:
        state.variables[names[0]] = text.split()
    elif names:
        parts = text.strip().split(None, len(names) - 1)
        state.variables |= dict(zip(names, [*parts, *[""] * len(names)], strict=False))
    return True


def _export(_reading: FolderReader, words: list[str], state: ShellState, _given: str | None) -> bool | None:
    """Follow `export` with words from an expansion: `export $OPTIONS`."""
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            state.variables[name] = value
        state.exported.add(name)
    return True


def _end(kind: str) -> Builtin:
    def end(_reading: FolderReader, _words: list[str], state: ShellState, _given: str | None) -> bool | None:
        state.ended = kind
        return True

    return end


def _done(_reading: FolderReader, _words: list[str], _state: ShellState, _given: str | None) -> bool | None:
    return True


def _false(_reading: FolderReader, _words: list[str], _state: ShellState, _given: str | None) -> bool | None:
    return False


BUILTINS: Mapping[str, Builtin] = {
    "cd": _cd,
    "pushd": _cd,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "export": _export,
    "declare": _export,
    "exit": _end("exit"),
    "return": _end("return"),
    "break": _end("break"),
    "continue": _end("continue"),
    "true": _done,
    ":": _done,
    "wait": _done,
    "sleep": _done,
    "trap": _done,
    "shopt": _done,
    "ulimit": _done,
    "false": _false,
}


# ---------------------------------------------------------------- programs


def _echo(words: list[str], _state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    while words and re.fullmatch(r"-[neE]+", words[0]):
        words = words[1:]
    return " ".join(words) + "\n"


def _printf(words: list[str], _state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    if not words:
        return None
    form, rest = words[0].replace("\\n", "\n"), words[1:]
    if form.count("%") == form.count("%s") and form.count("%s") == len(rest):
        return form.replace("%s", "\0").replace("%%", "%") if not rest else _filled(form, rest)
    if form.count("%s") == form.count("%") == 1:
        return "".join(_filled(form, [word]) for word in rest)
    return None


def _filled(form: str, words: list[str]) -> str:
    parts = form.split("%s")
    return "".join(part + word for part, word in zip(parts, [*words, ""], strict=False))


def _pwd(_words: list[str], state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    return state.folder + "\n"


def _dirname(words: list[str], _state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    return (posixpath.dirname(words[0].rstrip("/")) or ".") + "\n" if len(words) == 1 else None


def _basename(words: list[str], _state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        return None
    return posixpath.basename(words[0].rstrip("/")).removesuffix(words[1] if len(words) == 2 else "") + "\n"


def _absolute(words: list[str], state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    names = [word for word in words if not word.startswith("-")]
    if len(names) != 1 or (holes_in(names[0]) and not names[0].startswith(OPEN)):
        return None
    return (names[0] if holes_in(names[0]) else posixpath.normpath(posixpath.join(state.folder, names[0]))) + "\n"


def _seq(words: list[str], _state: ShellState, _given: str | None, _around: ShellContext) -> str | None:
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in words):
        return None
    numbers = [int(word) for word in words]
    first, step, last = (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[1]) if len(numbers) == 2 else numbers
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return "".join(f"{number}\n" for number in found) if len(found) <= MAX_NUMBERS else None


def _date(words: list[str], _state: ShellState, _given: str | None, around: ShellContext) -> str | None:
    forms = [word[1:] for word in words if word.startswith("+")]
    if len(words) != len(forms) or len(forms) > 1:
        return None
    return around.moment(forms[0] if forms else "%a %b %e %H:%M:%S %Z %Y") + "\n"


def _cat(words: list[str], _state: ShellState, given: str | None, _around: ShellContext) -> str | None:
    return given if not words or words == ["-"] else None


def _wc(words: list[str], _state: ShellState, given: str | None, _around: ShellContext) -> str | None:
    if given is None or OPEN in given:
        return None
    return {"-l": f"{given.count(chr(10))}\n", "-w": f"{len(given.split())}\n"}.get(" ".join(words))


def _tr(words: list[str], _state: ShellState, given: str | None, _around: ShellContext) -> str | None:
    if given is None or OPEN in given or words[:1] == ["-s"]:
        return None
    if words[:1] == ["-d"] and len(words) == 2:
        return "".join(character for character in given if character not in words[1].replace("\\n", "\n"))
    one, other = (word.replace("\\n", "\n") for word in words) if len(words) == 2 else ("", "")
    return given.replace(one, other) if len(one) == len(other) == 1 else None


def _head(words: list[str], _state: ShellState, given: str | None, _around: ShellContext) -> str | None:
    count = next((match[1] for word in words if (match := re.fullmatch(r"(?:-n|-)?(\d{1,6})", word))), None)
    if given is None or count is None or OPEN in given:
        return None
    return "".join(given.splitlines(keepends=True)[: int(count)])


PRINTING: Mapping[str, Printing] = {
    "echo": _echo,
    "printf": _printf,
    "pwd": _pwd,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _absolute,
    "readlink": _absolute,
    "seq": _seq,
    "date": _date,
    "cat": _cat,
    "wc": _wc,
    "tr": _tr,
    "head": _head,
}
