"""The parser of the command line, and types for options that take numbers."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import NoReturn

from dstui.base.limits import MAX_RANKS
from dstui.base.text import escaped


class Parser(ArgumentParser):
    """An ArgumentParser whose errors are safe to show: they repeat what was typed."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        super().error(escaped(message))


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
