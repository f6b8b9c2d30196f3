"""Recognise prefixes that users' own wrappers put before every line: a logger's header, `> `, an indent, a worker's name.

What precedes the head of a traceback, or one of its frames, also precedes its other lines, except for digits.
"""

from __future__ import annotations

import re

from dstui.diagnosis.recognition.labels import is_no_host
from dstui.diagnosis.recognition.traces import HEADER

RANK = r"(?:\[rank\d+\]: ?)?"
FRAME = re.compile(rf'^(.{{1,160}}?)(?={RANK}  File "[^"]+", line \d+(?:, in|$))')
HEAD = re.compile(rf"^(.{{1,160}}?)(?<!\w)(?={RANK}(?:\w{{0,60}}(?:Error|Exception|Interrupt|Exit)\s{{1,80}})?{re.escape(HEADER)})")
BAR = re.compile(r"\d%\||(?:it|s)/(?:s|it)\b|\[rank\d+\]: *$|(?:Error|Exception|Interrupt|Exit)\W*$|^[A-Z]\w*\s{6,}$|\(exitcode: ")
"""Text that precedes a traceback by chance: an unfinished progress bar, a rank's label, the exception in a notebook, torchrun's message
about an end if lines were joined."""
MOMENT = r"(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
BEGUN = re.compile(MOMENT)
STAMP = re.compile(
    rf"{MOMENT}:?(?: |$)"
    r"(?! ?(?:[-|:,(]|\[?(?:INFO|WARN|ERROR|DEBUG|CRITICAL|FATAL|TRACE)))"
)
"""A time stamp before arbitrary output (ts, kubectl logs, the runners of GitHub), not as part of a logger's header."""
HOST = re.compile(r"([A-Za-z][\w.-]*): ")
"""Prefixes that pdsh and similar programs put before each line."""
COLLECTED = re.compile(
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w.@/-]+\[\d+\]: "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(?:\d{7}|\d{9})Z |[\w.-]*\w[-_]\d+ +\| |\[\+ *\d+\.\d+\] "
    r'|ErrorMessage "(?=[\w.]*(?:Error|Exception)\b)'
)
"""Prefixes of journald (and syslog), containers, GitHub's runners, docker compose, of the seconds since a start, and of SageMaker."""
ENOUGH, MOSTLY = 6, 0.8
"""The number of lines at the beginning of a file, and the share of them with a common beginning, from which all lines are assumed to have
it."""
BARE = 0.4
"""The share of time stamps outside of a logger's header, from which a wrapper must have added them."""
KINDS_OF_HOSTS = 3
"""Distinct names of hosts, ignoring numbers."""
NUMBER = re.compile(r"(?:[0-9a-f]{4,}-)+[0-9a-f]{4,}|\d+")
MAX_PREFIXES = 8


class Prefixes:
    """The prefixes of one file."""

    def __init__(self) -> None:
        self._known: dict[str, re.Pattern[str]] = {}
        self._stamped = False
        self._hosts: frozenset[str] = frozenset()
        """The names of hosts that precede each line, without their numbers."""

    def learn_beginning(self, lines: list[str]) -> None:
        """Learn from the first lines of the file which prefix all lines have."""
        least = max(ENOUGH, MOSTLY * len(lines))
        begun, bare = (sum(pattern.match(line) is not None for line in lines) for pattern in (BEGUN, STAMP))
        self._stamped = begun >= least and bare >= BARE * begun  # a program's own logger has none without a header, a wrapper mostly such
        names = [found[1] for line in lines if (found := HOST.match(self._unstamped(line))) and not is_no_host(found[1])]
        hosts = frozenset(NUMBER.sub("0", name) for name in names)
        if len(names) >= least and len(hosts) <= KINDS_OF_HOSTS:  # in a printed configuration, each line begins with another word
            self._hosts = hosts

    def stripped(self, line: str) -> tuple[str, str | None]:
        """Return a line without the prefix of this file, and the host that the prefix names."""
        line = self._unstamped(line)
        found = HOST.match(line) if self._hosts else None
        if found is None or NUMBER.sub("0", found[1]) not in self._hosts:
            return line, None
        return line[found.end() :], found[1]

    def _unstamped(self, line: str) -> str:
        line = COLLECTED.sub("", line, count=1) if COLLECTED.match(line) else line
        return STAMP.sub("", line, count=1) if self._stamped and STAMP.match(line) else line

    def without(self, text: str) -> str:
        """Return a line without the known prefix of its file."""
        if self._known or HEADER in text or '  File "' in text:
            self._learn(text)
        for pattern in self._known.values():
            if found := pattern.match(text):
                return text[found.end() :]
        return text

    def _learn(self, text: str) -> None:
        found = HEAD.match(text) or FRAME.match(text)
        if found is None or not found[1] or BAR.search(found[1]) or len(self._known) >= MAX_PREFIXES:
            return
        shape = NUMBER.sub("0", found[1])
        if shape not in self._known:
            self._known[shape] = re.compile("".join(_words(found[1])))


def _words(prefix: str) -> list[str]:
    """Return the prefix as parts of a regular expression in which numbers may differ."""
    parts, at = [], 0
    for number in NUMBER.finditer(prefix):
        parts += [re.escape(prefix[at : number.start()]), r"[0-9a-f-]+" if "-" in number[0] else r"\d+"]
        at = number.end()
    return [*parts, re.escape(prefix[at:])]
