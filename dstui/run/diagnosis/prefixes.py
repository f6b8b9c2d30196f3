"""What people's own wrappers put before every line: a logger's head, `> `, an indent, a worker's name.

Whatever stands before the head of a traceback, or before one of its frames, stands before its other lines too, but for its digits.
"""

from __future__ import annotations

import re

from dstui.run.diagnosis.traces import HEADER

RANK = r"(?:\[rank\d+\]: ?)?"
FRAME = re.compile(rf'^(.{{1,160}}?)(?={RANK}  File "[^"]+", line \d+(?:, in|$))')
HEAD = re.compile(rf"^(.{{1,160}}?)(?<!\w)(?={RANK}(?:\w{{0,60}}(?:Error|Exception|Interrupt|Exit)\s{{1,80}})?{re.escape(HEADER)})")
BAR = re.compile(r"\d%\||(?:it|s)/(?:s|it)\b|\[rank\d+\]: *$|(?:Error|Exception|Interrupt|Exit)\W*$|\(exitcode: ")
"""What stands before a traceback by chance: a progress bar that had not ended its line, a rank's label, the exception in a notebook,
torchrun's word for an end where somebody joined the lines."""
NUMBER = re.compile(r"(?:[0-9a-f]{4,}-)+[0-9a-f]{4,}|\d+")
MOST = 8


class Prefixes:
    """The prefixes of one file."""

    def __init__(self) -> None:
        self._known: dict[str, re.Pattern[str]] = {}

    def without(self, text: str) -> str:
        """A line without the prefix that lines of this file are known to have."""
        if self._known or HEADER in text or '  File "' in text:
            self._learn(text)
        for pattern in self._known.values():
            if found := pattern.match(text):
                return text[found.end() :]
        return text

    def _learn(self, text: str) -> None:
        found = HEAD.match(text) or FRAME.match(text)
        if found is None or not found[1] or BAR.search(found[1]) or len(self._known) >= MOST:
            return
        shape = NUMBER.sub("0", found[1])
        if shape not in self._known:
            self._known[shape] = re.compile("".join(_words(found[1])))


def _words(prefix: str) -> list[str]:
    """The prefix as parts of a regular expression in which numbers may differ."""
    parts, at = [], 0
    for number in NUMBER.finditer(prefix):
        parts += [re.escape(prefix[at : number.start()]), r"[0-9a-f-]+" if "-" in number[0] else r"\d+"]
        at = number.end()
    return [*parts, re.escape(prefix[at:])]
