"""PyYAML, imported in a third less time: its Python reader compiles a pattern in 3.5 ms, which dstui, with the C reader, never uses.

The pattern is compiled when it is first used, by whoever reads with PyYAML's own reader.
"""

from __future__ import annotations

import re
from typing import Any

OF_THE_READER = "\U00010000-\U0010ffff"
"""Only this pattern contains it."""


class _Later:
    """A pattern that is compiled when it is first used."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __getattr__(self, name: str) -> Any:
        return getattr(re.compile(self._pattern), name)  # re keeps what it has compiled


_compile = re.compile


def _compile_later(pattern: Any, flags: int = 0) -> Any:
    return _Later(pattern) if isinstance(pattern, str) and OF_THE_READER in pattern else _compile(pattern, flags)


re.compile = _compile_later
try:
    import yaml
finally:
    re.compile = _compile

__all__ = ["yaml"]
