"""Compute shell builtins and programs whose output follows from their words: echo, dirname, seq and others."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from dstui.adopt.shell.filters import calculated, filtered
from dstui.adopt.shell.reader import Shell, Status
from dstui.adopt.shell.shell_state import OPEN, hole, holes_in, to_display_text

Builtin = Callable[[Shell, list[str]], Status]
Printing = Callable[[Shell, list[str]], "str | None"]
MAX_NUMBERS = 10_000
MAX_PRINTED = 100_000
FOUND_ON_PATH = re.compile(r"python[\d.]*|deepspeed|torchrun|accelerate|bash|sh")
READ_FILES = ("cat", "sed", "awk", "cut", "head", "tail", "grep", "sort", "uniq", "wc")
"""Programs that read the file after their options in place of standard input."""
CONVERSION = re.compile(r"%%|%[-+ 0]*\d{0,3}(?:\.\d{1,2})?[sdifg]")
"""A conversion in a format of printf."""


def printed(shell: Shell, name: str, words: Sequence[str]) -> str | None:
    """Return the output of a program; None if only running it shows that."""
    short = name.rpartition("/")[2]
    if program := PRINTING.get(short):
        return program(shell, list(words))
    return None if shell.given is None else filtered(short, words, shell.given)


# Builtins


def _cd(shell: Shell, words: list[str]) -> Status:
    state = shell.state
    folder = next((word for word in words if word not in ("-P", "-L", "--")), hole("computed", "HOME"))
    if folder == "-":
        state.folder, state.previous = state.previous or state.folder, state.folder
        return True
    if not folder:
        return True
    if state.absent and not folder.startswith(("/", OPEN)):
        folder = posixpath.normpath(posixpath.join(state.absent, folder))
        state.absent = "" if folder == "." or folder.startswith("..") else folder
        if not folder.startswith(".."):
            if state.absent:
                shell.reader.unknowns.note(f"cd {to_display_text(folder)}: no such folder here; the current folder is used instead")
            return True
    if shell.is_folder(folder) is False:
        state.absent = "" if folder.startswith(("/", OPEN)) else folder
        shell.reader.unknowns.note(f"cd {to_display_text(folder)}: no such folder here; the current folder is used instead")
        return None
    state.previous, state.absent = state.folder, ""
    state.folder = folder if folder.startswith(OPEN) else shell.path(folder)
    return True


def _mkdir(shell: Shell, words: list[str]) -> Status:
    for word in words:
        if not word.startswith("-") and not holes_in(word):
            path, made = shell.path(word), shell.reader.made
            while path not in made and path != shell.state.folder and path not in ("", "/"):
                made.add(path)
                path = posixpath.dirname(path)
    return True


def _pushd(shell: Shell, words: list[str]) -> Status:
    shell.state.stack = [*shell.state.stack, shell.state.folder]
    return _cd(shell, words)


def _popd(shell: Shell, _words: list[str]) -> Status:
    state = shell.state
    if not state.stack:
        return False
    *state.stack, state.folder = state.stack
    return True


def _unset(shell: Shell, words: list[str]) -> Status:
    for name in words:
        shell.state.variables.pop(name, None)
        shell.state.exported.discard(name)
    return True


def _set(shell: Shell, words: list[str]) -> Status:
    if "--" in words:
        shell.state.positional, shell.state.arguments_given = words[words.index("--") + 1 :], True
    return True


def _shift(shell: Shell, words: list[str]) -> Status:
    state = shell.state
    count = int(words[0]) if words and words[0].isdigit() else 1
    state.shifted += 0 if state.arguments_given else count
    state.positional = state.positional[count:]
    return True


def _read(shell: Shell, words: list[str]) -> Status:
    """Follow `read NAME`, `read -r -d '' NAME` and `read -a NAME` from a here-document."""
    state, given = shell.state, shell.given
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
        return False  # there is no input
    text = given if whole else given.partition("\n")[0]
    if any("a" in option for option in options) and names:
        state.variables[names[0]] = split_fields(text, state.separators)
    elif names:
        parts = split_fields(text, state.separators, len(names) - 1)
        state.variables |= dict(zip(names, [*parts, *[""] * len(names)], strict=False))
    return True


def split_fields(text: str, separators: str, most: int | None = None) -> list[str]:
    """Split a text at the characters of IFS, as the shell does; `most`: the number of splits, from the left."""
    blanks = "".join(one for one in separators if one in " \t\n")
    marks = "".join(one for one in separators if one not in " \t\n")
    text = text.strip(blanks or "\0")
    if not separators or not text or most == 0:
        return [text] if text else []
    around = f"[{re.escape(blanks)}]*" if blanks else ""
    one_mark = f"{around}[{re.escape(marks)}]{around}" if marks else ""
    pattern = "|".join(filter(None, (one_mark, f"[{re.escape(blanks)}]+" if blanks else "")))
    found = re.split(pattern, text, maxsplit=most or 0)
    return found[:-1] if marks and not found[-1] and most is None else found


def _mapfile(shell: Shell, words: list[str]) -> Status:
    """Follow `mapfile -t NAME` with the lines of its input."""
    name = next((word for word in reversed(words) if not word.startswith("-")), "MAPFILE")
    if shell.given is None or OPEN in shell.given:
        shell.state.variables[name] = hole("computed", name)
        return None
    shell.state.variables[name] = shell.given.splitlines(keepends="-t" not in words)
    return True


def _export(shell: Shell, words: list[str]) -> Status:
    """Follow `export` with words from an expansion: `export $OPTIONS`."""
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            shell.state.variables[name] = value
        shell.state.exported.add(name)
    return True


def _end(kind: str) -> Builtin:
    def end(shell: Shell, _words: list[str]) -> Status:
        shell.state.ended = kind
        return True

    return end


def _done(_shell: Shell, _words: list[str]) -> Status:
    return True


def _false(_shell: Shell, _words: list[str]) -> Status:
    return False


BUILTINS: Mapping[str, Builtin] = {
    "cd": _cd,
    "mkdir": _mkdir,
    "pushd": _pushd,
    "popd": _popd,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
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


# Programs


def _echo(_shell: Shell, words: list[str]) -> str | None:
    while words and re.fullmatch(r"-[neE]+", words[0]):
        words = words[1:]
    return " ".join(words) + "\n"


def _printf(_shell: Shell, words: list[str]) -> str | None:
    """Apply printf as the shell does, repeating the format for all words; None for an unknown format."""
    if not words or re.search(r"%(?!%|[-+ 0]*\d{0,3}(?:\.\d{1,2})?[sdifg])", words[0].replace("%%", "")):
        return None
    form, rest, found = re.sub(r"\\([nt\\])", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), words[0]), list(words[1:]), ""
    count = len(CONVERSION.findall(form.replace("%%", "")))
    while len(found) < MAX_PRINTED:
        taken, rest = rest[:count], rest[count:]
        given = iter([*taken, *[""] * (count - len(taken))])
        try:
            found += CONVERSION.sub(lambda match: "%" if match[0] == "%%" else _converted(match[0], next(given)), form)  # noqa: B023
        except ValueError:
            return None
        if not rest or not count:
            return found
    return None


def _converted(form: str, word: str) -> str:
    """Format a word by one conversion. Raises ValueError if it is not a number."""
    kind = form[-1]
    if OPEN in word and (kind != "s" or form != "%s"):
        raise ValueError
    return form % (word if kind == "s" else int(word or "0", 0) if kind in "di" else float(word or "0"))


def _pwd(shell: Shell, _words: list[str]) -> str | None:
    return shell.state.folder + "\n"


def _dirname(_shell: Shell, words: list[str]) -> str | None:
    words = words[words[:1] == ["--"] :]
    if len(words) != 1 or _ends_open(words[0]):
        return None
    return (posixpath.dirname(words[0].rstrip("/")) or ".") + "\n"


def _ends_open(path: str) -> bool:
    """Return whether the last name of a path has a hole, which may contain several names."""
    return OPEN in posixpath.basename(path.rstrip("/"))


def _basename(_shell: Shell, words: list[str]) -> str | None:
    words = words[words[:1] == ["--"] :]
    if not 1 <= len(words) <= 2 or words[0].startswith("-") or _ends_open(words[0]):
        return None
    return posixpath.basename(words[0].rstrip("/")).removesuffix(words[1] if len(words) == 2 else "") + "\n"


def _absolute(shell: Shell, words: list[str]) -> str | None:
    names = [word for word in words if not word.startswith("-")]
    if len(names) != 1 or (holes_in(names[0]) and not names[0].startswith(OPEN)):
        return None
    return (names[0] if holes_in(names[0]) else shell.path(names[0])) + "\n"


def _seq(_shell: Shell, words: list[str]) -> str | None:
    separator = "\n"
    if words[:1] and words[0].startswith("-s"):
        separator, words = (words[0][2:], words[1:]) if words[0] != "-s" else ("".join(words[1:2]), words[2:])
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in words):
        return None
    numbers = [int(word) for word in words]
    first, step, last = (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[1]) if len(numbers) == 2 else numbers
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return separator.join(map(str, found)) + "\n" if len(found) <= MAX_NUMBERS else None


def _date(shell: Shell, words: list[str]) -> str | None:
    forms = [word[1:] for word in words if word.startswith("+")]
    if len(words) != len(forms) or len(forms) > 1:
        return None
    return shell.reader.context.moment(forms[0] if forms else "%a %b %e %H:%M:%S %Z %Y") + "\n"


def _cat(shell: Shell, words: list[str]) -> str | None:
    return shell.given if not words or words == ["-"] else None


def _expr(_shell: Shell, words: list[str]) -> str | None:
    return calculated(" ".join(words))


def _which(_shell: Shell, words: list[str]) -> str | None:
    """Print a launcher's name in place of its path, which the Plan's machine may have elsewhere."""
    names = [word for word in words if not word.startswith("-")]
    return f"{names[0]}\n" if len(names) == 1 and FOUND_ON_PATH.fullmatch(names[0]) else None


def _command(shell: Shell, words: list[str]) -> str | None:
    return _which(shell, words) if words[:1] == ["-v"] else None


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
    "expr": _expr,
    "which": _which,
    "command": _command,
}
