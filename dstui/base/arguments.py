"""The parser of the command line, and types for options that take numbers."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dstui.base.limits import MAX_RANKS
from dstui.base.text import escaped


class Parser(ArgumentParser):
    """An ArgumentParser whose errors are safe to show, since they repeat what was typed, and name the option that may have been meant.

    An option is written out: a mistyped one that happens to begin another must not start a job.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and the options that unknown ones resemble, and exit with 2."""
        near = self._nearest(message.split()) if message.startswith("unrecognized arguments") else []
        super().error(escaped(message) + (f" (did you mean {', '.join(near)}?)" if near else ""))

    def _nearest(self, typed: Sequence[str]) -> list[str]:
        from difflib import get_close_matches

        options = (word.partition("=")[0] for word in typed if word.startswith("--"))
        return [match for option in options for match in get_close_matches(option, self._option_string_actions, 1, 0.7)]


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
