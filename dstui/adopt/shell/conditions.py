"""Evaluate `[[ … ]]`, `[ … ]` and `test` if all their parts are known. Source: the Bash Reference Manual, 6.4."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dstui.adopt.shell.expansion import Expander, line_of
from dstui.adopt.shell.shell_state import Node, Undecidable
from dstui.plan.patterns import compile_pattern

NUMERIC: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}


class Conditions:
    """Evaluates tests in one state. Methods raise Undecidable if only a run decides."""

    def __init__(self, expander: Expander, as_tested: Callable[[str, int], str], is_folder: Callable[[str], bool | None]) -> None:
        self.expander, self.as_tested, self.is_folder = expander, as_tested, is_folder

    def clause(self, node: Node) -> bool:
        """Evaluate the content of `[[ … ]]`."""
        kind, operator = node["Type"], node.get("Op", "")
        if kind == "ParenTest":
            return self.clause(node["X"])
        if kind == "UnaryTest":
            if operator == "!":
                return not self.clause(node["X"])
            return self._unary(operator, self._text(node["X"]))
        if kind == "BinaryTest":
            if operator in ("&&", "||"):
                return self._joined(operator, lambda: self.clause(node["X"]), lambda: self.clause(node["Y"]))
            if operator in ("=", "==", "!="):
                pattern = self.as_tested(self.expander.pattern(node["Y"]), line_of(node))
                return fnmatch.fnmatchcase(self._text(node["X"]), pattern) is (operator != "!=")
            empty = "0" if operator in NUMERIC else ""  # `[[` computes both sides: nothing is 0, which is an error for `[`
            return self._binary(self._text(node["X"]) or empty, operator, self._text(node["Y"]) or empty)
        return bool(self._text(node))

    def words(self, words: Sequence[str]) -> bool:
        """Evaluate the words of `[ … ]`."""
        for joint, operator in (("-o", "||"), ("-a", "&&")):
            if joint in words[1:-1]:
                left, right = words[: words.index(joint, 1)], words[words.index(joint, 1) + 1 :]
                return self._joined(operator, partial(self.words, left), partial(self.words, right))
        if words[:1] == ["!"]:
            return not self.words(words[1:])
        known = [self.as_tested(word, 0) for word in words]
        if len(known) == 3:
            return self._binary(*known)
        if len(known) == 2 and known[0].startswith("-"):
            return self._unary(*known)
        if len(known) <= 1:
            return bool(known and known[0])
        raise Undecidable

    def _matches(self, text: str, pattern: str) -> bool:
        """Evaluate `=~`, in time linear in the text, and set BASH_REMATCH."""
        try:
            found = compile_pattern(pattern).search(text)
        except ValueError:
            raise Undecidable from None
        self.expander.state.variables["BASH_REMATCH"] = [] if found is None else [found[0], *(group or "" for group in found.groups())]
        return found is not None

    def _joined(self, operator: str, left: Callable[[], bool], right: Callable[[], bool]) -> bool:
        """Evaluate `&&` and `||`, for which one known side may be enough."""
        decisive = operator == "||"
        try:
            first: bool | None = left()
        except Undecidable:
            first = None
        if first is decisive:
            return decisive
        second = right()
        if first is None and second is not decisive:
            raise Undecidable
        return second

    def _text(self, node: Node) -> str:
        return self.as_tested(self.expander.text(node), line_of(node))

    def _unary(self, operator: str, text: str) -> bool:
        if operator in ("-z", "-n"):
            return bool(text) == (operator == "-n")
        if operator == "-v":
            return self.expander.value_of(text) is not None
        if operator in ("-d", "-e", "-f", "-s", "-r") and not text:
            return False
        if operator == "-d" and (known := self.is_folder(text)) is not None:
            return known
        raise Undecidable

    def _binary(self, left: str, operator: str, right: str) -> bool:
        if operator in NUMERIC:
            numbers = [int(text) for text in (left, right) if re.fullmatch(r"\s*-?\d{1,18}\s*", text)]
            return len(numbers) == 2 and NUMERIC[operator](*numbers)  # bash reports "integer expression expected", which is false
        if operator in ("=", "==", "!="):
            return (left == right) == (operator != "!=")
        if operator == "=~":
            return self._matches(left, right)
        if operator in ("<", ">"):
            return left < right if operator == "<" else left > right
        raise Undecidable
