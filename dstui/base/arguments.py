"""The parser of the command line, and types for options that take numbers."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dstui.base.limits import MAX_RANKS
from dstui.base.text import escaped, similar_words


class Parser(ArgumentParser):
    """An ArgumentParser whose errors are safe to show, since they repeat what was typed, and name the option that may have been meant.

    An option is written out: a mistyped one that happens to begin another must not start a job.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    # argparse declares overloads of this method, which mypy cannot match with one signature
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse, and refuse an empty argument: `dstui stop "$RUN"` must not stop the newest run because RUN is unset."""
        words = list(sys.argv[1:] if args is None else args)
        own = words[: words.index("--")] if "--" in words else words
        if any(not word or (word.startswith("--") and word.partition("=")[1:] == ("=", "")) for word in own):
            self.error('an argument is empty: is a variable of the shell unset? ("$NAME")')
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and the options that unknown ones resemble, and exit with 2."""
        near = self._nearest(message.split()) if message.startswith("unrecognized arguments") else []
        super().error(escaped(message) + (f" (did you mean {', '.join(near)}?)" if near else ""))

    def _nearest(self, typed: Sequence[str]) -> list[str]:
        options = (word.partition("=")[0] for word in typed if word.startswith("--"))
        return [match for option in options for match in similar_words(option, self._option_string_actions, 1, 0.7)]


def bounded(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], float]:
    """Return an argparse type for numbers from `least` to `most`."""

    def number(text: str) -> float:
        try:
            found = kind(text)
        except ValueError:
            found = None
        if found is None or not least <= found <= most:
            raise ArgumentTypeError(f"{text[:40]!r} is not a {'whole ' * (kind is int)}number from {least:,g} to {most:,g}")
        return found

    return number


a_rank = bounded(int, 0, MAX_RANKS)
seconds = bounded(float, 0.01, 86400)
