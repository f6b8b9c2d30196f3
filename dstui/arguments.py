"""The parser of the command line."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import NoReturn

from dstui.text import escaped


class Parser(ArgumentParser):
    """argparse's own, whose errors repeat what was typed and are therefore made safe to show."""

    def error(self, message: str) -> NoReturn:
        """Say how it is called and what is wrong, and end with 2."""
        super().error(escaped(message))
