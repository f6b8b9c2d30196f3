"""Parse the messages of an agent. A host may be broken or malicious, so everything is bounded and checked.

frames = AgentFrames()
for frame in frames.feed(data): ...      after a FrameError nothing more is trusted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import json_object
from dstui.base.text import sanitise
from dstui.hosts.agent import CHUNK, READY

MAX_NOISE = 1 << 16
"""Bytes that a login shell may print before the agent's first line."""
LONGEST_HEAD = 1 << 16
LONGEST_NAME = 256
LONGEST_TEXT = 1 << 12


class FrameError(Exception):
    """The data is not from an agent. Holds the reason as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class AgentFrame:
    """One message of an agent: its kind, its facts in the form of FORMS, and its payload."""

    kind: str
    facts: Mapping[str, Any]
    data: bytes = b""


Form = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT and "\0" not in value


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 40


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60


FORMS: Mapping[str, Mapping[str, Form]] = {
    "hello": {"time": _is_time, "there": _is_bool, "folder": _is_text, "lacks": _is_texts},
    "refused": {"text": _is_text},
    "log": {"file": _is_name, "at": _is_count},
    "record": {"file": _is_name},
    "state": {"file": _is_name},
    "beat": {"time": _is_time},
    "gpus": {},
    "ended": {"attempt": _is_count, "exit_code": lambda value: _is_count(value) and value < 256, "text": _is_text},
    "swept": {"left": _is_texts},
    "bye": {},
}
"""Kind -> required facts and their types."""


def _safe(value: Any) -> Any:
    """Return a fact that is safe in a sentence: a carriage return would hide the words before it."""
    if isinstance(value, list):
        return [_safe(each) for each in value]
    return sanitise(value) if isinstance(value, str) else value


class AgentFrames:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._ready = False

    def feed(self, data: bytes) -> Iterator[AgentFrame]:
        """Yield the frames that these bytes complete. Raises FrameError."""
        self._rest += data
        if not self._ready:
            before, mark, rest = self._rest.partition(READY)
            if not mark:
                if len(before) > MAX_NOISE:
                    raise FrameError("a program there prints endless output before the agent starts")
                return
            self._ready, self._rest = True, rest
        at = 0
        while (parsed := self._frame(at)) is not None:
            frame, at = parsed
            yield frame
        del self._rest[:at]

    def _frame(self, at: int) -> tuple[AgentFrame, int] | None:
        """Return the frame at an offset and the offset of the next one; None if it is incomplete."""
        end = self._rest.find(b"\n", at)
        if end < 0 or end - at > LONGEST_HEAD:
            if max(end, len(self._rest)) - at > LONGEST_HEAD:
                raise FrameError("its output is not a message of dstui's agent")
            return None
        head = json_object(bytes(self._rest[at:end]))
        form, size = FORMS.get(str(head.get("is"))), head.get("size", -1)
        if form is None or not _is_count(size) or size > CHUNK or not all(known(head.get(key)) for key, known in form.items()):
            raise FrameError("its output is not a message of dstui's agent")
        if len(self._rest) < end + 1 + size:
            return None
        facts = {key: _safe(value) for key, value in head.items()}
        return AgentFrame(head["is"], facts, bytes(self._rest[end + 1 : end + 1 + size])), end + 1 + size
