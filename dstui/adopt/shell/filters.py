"""Compute the output of text filters: cut, sed, awk, tr, bc and others, in the forms that launch scripts use.

Each function returns None if only running the program tells: for an unknown option, or a text with a hole. Source: POSIX.1-2017, Utilities.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from dstui.adopt.shell.shell_state import OPEN

Filter = Callable[[list[str], str], "str | None"]
MAX_CHARACTERS = 100_000
"""Longer texts are not processed."""
SETS = {"[:upper:]": "A-Z", "[:lower:]": "a-z", "[:digit:]": "0-9", "[:space:]": " \t\n\r\f\v", "[:blank:]": " \t"}
FIELDS = re.compile(r"(\d{1,4})?(-)?(\d{1,4})?")
AWK = re.compile(r"\s*\{\s*print\s+(\$?)(NF|\d{1,4})\s*;?\s*\}\s*")
PART = r"((?:\\.|(?!\1).)*)"
SUBSTITUTION = re.compile(rf"s([^\w\s\\]){PART}\1{PART}\1(g?)")
NOT_PLAIN = re.compile(r"[.*\[\]+?(){}|]|\\[^/.,|#:@*+?-]")
"""A sed pattern that is not plain text."""
INTEGERS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),
    ast.Mod: lambda left, right: left - right * int(left / right),
}


def filtered(name: str, words: Sequence[str], given: str) -> str | None:
    """Return the output of a program for a standard input; None if only running it shows that."""
    program = FILTERS.get(name)
    if program is None or OPEN in given or any(OPEN in word for word in words) or len(given) > MAX_CHARACTERS:
        return None
    return program(list(words), given)


def _wc(words: list[str], given: str) -> str | None:
    return {"-l": f"{given.count(chr(10))}\n", "-w": f"{len(given.split())}\n"}.get(" ".join(words))


def _tr(words: list[str], given: str) -> str | None:
    if words[:1] == ["-d"] and len(words) == 2:
        gone = _characters(words[1])
        return "".join(character for character in given if character not in gone)
    if len(words) != 2 or words[0].startswith("-"):
        return None
    old, new = map(_characters, words)
    if not new:
        return None
    return given.translate({ord(one): other for one, other in zip(old, new + new[-1] * len(old), strict=False)})


def _characters(text: str) -> str:
    """Expand a set of tr: classes, ranges, escapes."""
    text = SETS.get(text, text).replace("\\n", "\n").replace("\\t", "\t")
    return re.sub(r"(.)-(.)", lambda match: "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1))), text, flags=re.DOTALL)


def _head(words: list[str], given: str) -> str | None:
    count = _count(words)
    return None if count is None else "".join(given.splitlines(keepends=True)[:count])


def _tail(words: list[str], given: str) -> str | None:
    count = _count(words)
    return None if count is None else "".join(given.splitlines(keepends=True)[-count:] if count else [])


def _count(words: list[str]) -> int | None:
    found = re.fullmatch(r"(?:-n ?|-)(\d{1,6})", " ".join(words))
    return int(found[1]) if found else None


def _cut(words: list[str], given: str) -> str | None:
    options = dict(_options(words, "df"))
    chosen = FIELDS.fullmatch(options.get("f", ""))
    if set(options) - {"d", "f"} or not options.get("f") or chosen is None or len(options.get("d", "\t")) != 1:
        return None
    mark, first, last = options.get("d", "\t"), int(chosen[1] or 1), int(chosen[3] or 0)
    end = first if not chosen[2] else last or None
    return "".join((mark.join(line.split(mark)[first - 1 : end]) if mark in line else line) + "\n" for line in given.splitlines())


def _options(words: list[str], with_value: str) -> Iterator[tuple[str, str]]:
    """Yield `-d, -f 1` as pairs. A word that is not an option is yielded with its own text."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if len(word) > 1 and word[0] == "-" and word[1] in with_value:
            yield word[1], word[2:] or (rest.pop(0) if rest else "")
        else:
            yield word, ""


def _sed(words: list[str], given: str) -> str | None:
    """Apply `s/a/b/g` with a plain-text pattern, ^ or $."""
    words = [word for word in words if word not in ("-e", "-E", "-r")]
    found = SUBSTITUTION.fullmatch(words[0]) if len(words) == 1 else None
    if found is None:
        return None
    _, old, new, everywhere = found.groups()
    if NOT_PLAIN.search(re.sub(r"\\[.*+?|/]", "", old)) or re.search(r"&|\\\d", new):
        return None
    plain = re.escape(re.sub(r"\\(.)", r"\1", old.removeprefix("^").removesuffix("$")))
    pattern = re.compile(("^" if old.startswith("^") else "") + plain + ("$" if re.search(r"(?<!\\)\$$", old) else ""))
    text = re.sub(r"\\(.)", r"\1", new)
    return "".join(pattern.sub(lambda _match: text, line, count=0 if everywhere else 1) + "\n" for line in given.splitlines())


def _awk(words: list[str], given: str) -> str | None:
    """Apply `{print $2}`, `{print NF}` or `{print $NF}`, with -F."""
    pairs = list(_options(words, "F"))
    mark = next((value for name, value in pairs if name == "F"), None)
    programs = [name for name, _ in pairs if name != "F"]
    found = AWK.fullmatch(programs[0]) if len(programs) == 1 else None
    if found is None or (mark is not None and (len(mark) != 1 or mark in r"\^$.|?*+()[{")):
        return None
    return "".join(_field(found, line.split(None if mark in (None, " ") else mark), line) + "\n" for line in given.splitlines())


def _field(printed: re.Match[str], fields: list[str], line: str) -> str:
    if not printed[1]:
        return str(len(fields)) if printed[2] == "NF" else printed[2]
    place = len(fields) if printed[2] == "NF" else int(printed[2])
    return line if place == 0 else fields[place - 1] if place <= len(fields) else ""


def _bc(words: list[str], given: str) -> str | None:
    """Calculate with integers, as bc does without a scale."""
    return None if words else calculated(given)


def calculated(text: str) -> str | None:
    """Return the value of an integer expression as a line; None for other texts."""
    if len(text) > 200 or not re.fullmatch(r"[\d\s()+*/%-]+", text) or re.search(r"\*\*|//|\b0\d|\d{16}", text):
        return None
    try:
        return f"{_value(ast.parse(text.strip(), mode='eval').body)}\n"
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and (calculate := INTEGERS.get(type(node.op))):
        return calculate(_value(node.left), _value(node.right))
    raise ValueError


def _paste(words: list[str], given: str) -> str | None:
    found = re.fullmatch(r"-s ?(?:-d ?(.)|-d\\n)?|-sd ?(.)", " ".join(word for word in words if word != "-"))
    return (found[1] or found[2] or "\t").join(given.splitlines()) + "\n" if found else None


def _xargs(words: list[str], given: str) -> str | None:
    """Return the given words, as xargs does without a command."""
    return None if words or re.search(r"""['"\\]""", given) else " ".join(given.split()) + "\n"


FILTERS: Mapping[str, Filter] = {
    "wc": _wc,
    "tr": _tr,
    "head": _head,
    "tail": _tail,
    "cut": _cut,
    "sed": _sed,
    "awk": _awk,
    "bc": _bc,
    "paste": _paste,
    "xargs": _xargs,
}
