"""Expand the words of a command as bash does: quotes, variables, arithmetic, command substitution, braces, field splitting.

Source: the Bash Reference Manual, 3.5 Shell Expansions. Globs are not expanded.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence

from dstui.adopt.shell.arithmetic import evaluate
from dstui.adopt.shell.shell_state import HOLE, Node, ShellLimit, ShellState, Undecidable, Value, hole, holes_in
from dstui.base.dataclass import dataclass

MAX_WORDS = 10_000
"""Words of one command after expanding braces and arrays."""
MAX_TEXT = 1_000_000
"""Characters of one value."""
ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
ANSI_C = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
BRACES = re.compile(r"\{([^{}\s]*)\}")
RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})")
NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a word."""

    text: str
    quoted: bool = True
    """Not split at blanks."""
    starts: bool = False
    """Begins a new word: an element of an array after the first."""


class Expander:
    """Expands words in one shell state.

    `output_of` runs the statements of a command substitution and returns their output. It raises Undecidable if an unknown program would
    print it. `unset` returns the hole of an unset variable.
    """

    def __init__(
        self, state: ShellState, output_of: Callable[[Node], str], unset: Callable[[str, str], str], name_hole: Callable[[Node], str]
    ) -> None:
        self.state, self.output_of, self.unset, self.name_hole = state, output_of, unset, name_hole

    def words(self, nodes: Sequence[Node]) -> list[str]:
        """Return the words of a command after all expansions."""
        found: list[str] = []
        for node in nodes:
            for braced in _braces(node):
                found += _split(self._segments(braced.get("Parts", ()), quoted=False), self.state.separators)
                if len(found) > MAX_WORDS:
                    raise ShellLimit(f"more than {MAX_WORDS:,} words in a command", line_of(node))
        return found

    def text(self, node: Node | None) -> str:
        """Return a word without splitting, as in an assignment."""
        if not node:
            return ""
        text = "".join((" " if segment.starts else "") + segment.text for segment in self._segments(node.get("Parts", ()), quoted=False))
        if len(text) > MAX_TEXT:
            raise ShellLimit("a value of more than a million characters", line_of(node))
        return text

    def pattern(self, node: Node) -> str:
        """Return a word as a pattern of fnmatch: quoted parts match themselves."""
        found = ""
        for part in node.get("Parts", ()):
            text = "".join(segment.text for segment in self._segments([part], quoted=False))
            found += re.sub(r"([*?\[])", r"[\1]", text) if part["Type"] in ("SglQuoted", "DblQuoted") else text
        return found

    def value_of(self, name: str) -> Value | None:
        """Return a variable's value; None if it is unset."""
        if name.isdigit() and name != "0":
            position = int(name)
            return self.state.positional[position - 1] if position <= len(self.state.positional) else None
        if name in ("@", "*"):
            return list(self.state.positional)
        if name == "#":
            return str(len(self.state.positional)) if self.state.positional or self.state.arguments_given else None
        return self.state.variables.get(name)

    def element(self, name: str, index: Node | None) -> str:
        """Return the variable that holds an element of an associative array. Raises Undecidable if its key is unknown."""
        word = self.text(index) if index and index.get("Type") == "Word" else ""
        if not word or word in ("@", "*") or holes_in(word):
            raise Undecidable  # the order of all elements is internal to bash
        return f"{name}[{word}]"

    def number(self, node: Node) -> int:
        """Return the value of an arithmetic expression. Raises Undecidable if it contains a hole."""
        return evaluate(node, self)

    def arithmetic_name(self, name: str) -> str:
        """Return a variable's text inside an arithmetic expression."""
        value = self.value_of(name)
        if value is None:
            return self.unset(name, self.state.folder)
        return (value[0] if value else "") if isinstance(value, list) else value

    def _segments(self, parts: Sequence[Node], *, quoted: bool) -> list[Segment]:
        found: list[Segment] = []
        for number, part in enumerate(parts):
            found += self._part(part, quoted=quoted, first=number == 0)
        return found

    def _part(self, part: Node, *, quoted: bool, first: bool) -> list[Segment]:
        kind = part["Type"]
        if kind == "Lit":
            text = part.get("Value", "")
            if quoted:
                return [Segment(ESCAPED_IN_QUOTES.sub(lambda match: "" if match[1] == "\n" else match[1], text))]
            if first and (text == "~" or text.startswith("~/")):
                return [Segment(hole("computed", "HOME") + text[1:])]
            return [Segment(ESCAPED.sub(lambda match: "" if match[1] == "\n" else match[1], text))]
        if kind == "SglQuoted":
            text = part.get("Value", "")
            return [Segment(re.sub(r"\\(.)", lambda match: ANSI_C.get(match[1], match[0]), text) if part.get("Dollar") else text)]
        if kind == "DblQuoted":
            return self._segments(part.get("Parts", ()), quoted=True) or [Segment("")]
        if kind == "ParamExp":
            return self._parameter(part, quoted=quoted)
        if kind == "ArithmExp":
            return [Segment(self._computed(part, lambda: str(self.number(part["X"]))), quoted)]
        if kind == "CmdSubst":
            return [Segment(self._computed(part, lambda: self.output_of(part).rstrip("\n")), quoted)]
        return [Segment(self._computed(part, _unknown))]

    def _computed(self, part: Node, compute: Callable[[], str]) -> str:
        try:
            return compute()
        except Undecidable:
            return hole("computed", self.name_hole(part))

    # Parameter expansion: ${…}

    def _parameter(self, part: Node, *, quoted: bool) -> list[Segment]:
        name = part["Param"]["Value"]
        try:
            value = self._operated(part, name, self._chosen(part, name))
        except Undecidable:
            element = _subscript(part) or ""
            which = f"{name}_{element}" if element.isdecimal() else name
            value = hole("computed", which if NAME.fullmatch(which) else self.name_hole(part))
        if isinstance(value, str):
            return [Segment(value, quoted)]
        if quoted and (name == "*" or _subscript(part) == "*"):
            return [Segment(self.state.separators[:1].join(value))]
        return [Segment(text, quoted, starts=number > 0) for number, text in enumerate(value)] or [Segment("", quoted=False)]

    def _chosen(self, part: Node, name: str) -> Value | None:
        """Return the value of the name and its index."""
        if name in self.state.associative and part.get("Index"):
            return self.state.variables.get(self.element(name, part["Index"]), "")
        value = self.value_of(name)
        if part.get("Excl"):
            if isinstance(value, list) and _subscript(part) in ("@", "*"):
                return [str(place) for place in range(len(value))]
            if isinstance(value, str) and NAME.fullmatch(value):
                return self.value_of(value)
            raise Undecidable
        subscript = _subscript(part)
        if subscript is None:
            return (value[0] if value else "") if isinstance(value, list) and name not in ("@", "*") else value
        if subscript in ("@", "*") and value is None and not part.get("Exp"):
            return []  # an environment holds no arrays
        if subscript in ("@", "*"):
            return [value] if isinstance(value, str) else value
        if value is None:
            return None
        items = [value] if isinstance(value, str) else value
        number = self.number(part["Index"])
        if len(items) == 1 and holes_in(items[0]) and number != 0:
            raise Undecidable  # words of a program's output: their positions are unknown
        return items[number] if -len(items) <= number < len(items) else ""

    def _operated(self, part: Node, name: str, value: Value | None) -> Value:
        operation = part.get("Exp") or {}
        operator, word = operation.get("Op", ""), operation.get("Word")
        if operator in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
            return self._default(name, value, operator, word)
        if value is None:
            value = self._not_set(name)
        if part.get("Length"):
            if isinstance(value, list):
                if len(value) == 1 and HOLE.fullmatch(value[0]) and holes_in(value[0])[0][0] == "computed":
                    raise Undecidable  # words of a program's output: their number is unknown
                return str(len(value))
            if holes_in(value):
                raise Undecidable
            return str(len(value))
        if not operator and not part.get("Repl") and not part.get("Slice"):
            return value
        if any(map(holes_in, [value] if isinstance(value, str) else value)):
            raise Undecidable
        if part.get("Slice"):
            return self._slice(part["Slice"], value)
        change = self._change(part, operator, word)
        return change(value) if isinstance(value, str) else [change(item) for item in value]

    def _default(self, name: str, value: Value | None, operator: str, word: Node | None) -> Value:
        is_null = operator.startswith(":") and (value in ("", []) or _is_unset_hole(value))
        is_set = value is not None and not is_null
        if operator.endswith("+"):
            return self.text(word) if is_set else ""
        if is_set and value is not None:
            return value
        if operator.endswith("?"):  # the script ends without it
            return HOLE.sub(lambda found: hole("computed", found[2]), self._not_set(name))
        text = self.text(word)
        if operator.endswith("=") and NAME.fullmatch(name):
            self.state.variables[name] = text
        return text

    def _not_set(self, name: str) -> str:
        """Return what stands for a variable without a value."""
        if name.isdigit() and name != "0":
            return "" if self.state.arguments_given else self.unset(str(int(name) + self.state.shifted), self.state.folder)
        return self.unset(name, self.state.folder)

    def _slice(self, node: Node, value: Value) -> Value:
        start = self.number(node["Offset"]) if node.get("Offset") else 0
        length = self.number(node["Length"]) if node.get("Length") else None
        start = max(start + len(value), 0) if start < 0 else start
        return value[start : (None if length is None else start + length if length >= 0 else length)]

    def _change(self, part: Node, operator: str, word: Node | None) -> Callable[[str], str]:
        if replacement := part.get("Repl"):
            pattern, new = self.pattern(replacement["Orig"]), self.text(replacement.get("With"))
            return _replaced(pattern, new, everywhere=bool(replacement.get("All")))
        if operator in ("^^", "^", ",,", ","):
            change = str.upper if "^" in operator else str.lower
            return change if len(operator) == 2 else lambda text: change(text[:1]) + text[1:]
        if operator in ("%", "%%", "#", "##") and word is not None:
            return _trimmed(self.pattern(word), operator)
        raise Undecidable


def line_of(node: Node | None) -> int:
    """Return the line on which a node begins; 0 if it has none."""
    line: int = (node or {}).get("Pos", (0, 0))[1]
    return line


def literal(word: Node) -> str:
    """Return a word without quotes, and with the names of its variables in place of their values."""
    return "".join(part.get("Value", "$" + part.get("Param", {}).get("Value", "")) for part in word.get("Parts") or ())


def _unknown() -> str:
    raise Undecidable


def _subscript(part: Node) -> str | None:
    """Return the index in ${NAME[…]} if it is a single literal."""
    index = part.get("Index")
    if not index:
        return None
    parts = index.get("Parts", ())
    return str(parts[0].get("Value", "")) if len(parts) == 1 and parts[0].get("Type") == "Lit" else ""


def _is_unset_hole(value: Value | None) -> bool:
    found = HOLE.fullmatch(value) if isinstance(value, str) else None
    return found is not None and found[1] == "unset"


def _replaced(pattern: str, new: str, *, everywhere: bool) -> Callable[[str], str]:
    body = re.match(r"\(\?s:(.*)\)\\[Zz]", fnmatch.translate(pattern), re.DOTALL)
    expression = re.compile(body[1] if body else re.escape(pattern), re.DOTALL)
    return lambda text: expression.sub(lambda _match: new, text, count=0 if everywhere else 1)


def _trimmed(pattern: str, operator: str) -> Callable[[str], str]:
    def trim(text: str) -> str:
        sizes = range(len(text) + 1)
        for size in sizes if len(operator) == 1 else reversed(sizes):
            cut = text[:size] if operator[0] == "#" else text[len(text) - size :]
            if fnmatch.fnmatchcase(cut, pattern):
                return text[size:] if operator[0] == "#" else text[: len(text) - size]
        return text

    return trim


def _split(segments: Sequence[Segment], separators: str) -> list[str]:
    """Join segments to words, split at the separators (IFS) outside of quotes."""
    at = re.compile(f"[{re.escape(separators)}]+") if separators else None
    words: list[str] = []
    current: str | None = None
    for segment in segments:
        if segment.starts and current is not None:
            words.append(current)
            current = None
        if segment.quoted or at is None:
            current = (current or "") + segment.text
            continue
        parts = at.split(segment.text)
        if parts[0]:
            current = (current or "") + parts[0]
        for part in parts[1:]:
            if current is not None:
                words.append(current)
            current = part or None
    return [*words, current] if current is not None else words


def _braces(node: Node) -> Iterator[Node]:
    """Yield the words of `{a,b}` and `{1..3}`. Only literal text is expanded, as in bash."""
    parts = node.get("Parts", ())
    for at, part in enumerate(parts):
        if part["Type"] != "Lit":
            continue
        for match in BRACES.finditer(part.get("Value", "")):
            choices = _choices(match[1], line_of(node))
            if choices is None or (match.start() > 0 and part["Value"][match.start() - 1] in "$\\"):
                continue
            before, after = part["Value"][: match.start()], part["Value"][match.end() :]
            for choice in choices:
                yield from _braces({**node, "Parts": [*parts[:at], {**part, "Value": before + choice + after}, *parts[at + 1 :]]})
            return
    yield node


def _choices(text: str, line: int) -> list[str] | None:
    if found := RANGE.fullmatch(text):
        first, last = int(found[1]), int(found[2])
        if abs(last - first) >= MAX_WORDS:
            raise ShellLimit(f"{{{text}}} stands for more than {MAX_WORDS:,} words", line)
        step = 1 if last >= first else -1
        return [str(number) for number in range(first, last + step, step)]
    return text.split(",") if "," in text else None
