"""Two defects of Textual 8.2 by which painted lines stay in memory, mended for this process.

An hour of use left two mebibytes for good, and twenty until Python's next full collection, which is rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from textual._styles_cache import StylesCache
from textual.strip import Strip


@cache
def mend_textual() -> None:
    """Mend Textual, once."""
    # mypy rightly objects to replacing methods of another class, which is what this does until Textual has mended them.
    # It means to cache two colours with this method of the class, but it is one of the object: the lines of the last thousand widgets stay.
    StylesCache.get_inner_outer = classmethod(StylesCache.get_inner_outer)  # type: ignore[arg-type, assignment, method-assign]
    divide = Strip.divide

    def divided(strip: Strip, cuts: Iterable[int]) -> Sequence[Strip]:
        """Return a line that is not cut as it is. Textual caches the line in itself, so that only the garbage collector frees it."""
        length = strip.cell_length
        inner = [cut for cut in cuts if cut <= length]
        return [strip] if inner == [length] else divide(strip, inner)

    Strip.divide = divided  # type: ignore[assignment, method-assign]
