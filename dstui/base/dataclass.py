"""`dataclass`, like that of the standard library, but created in a third of the time.

`dataclasses.dataclass` compiles the source of up to six methods per class, which was nearly half of the start of a command. Here only
`__init__` is compiled. mypy reports assignments to frozen fields; at run time they fail in Python's development mode (`python -X dev`),
which uses the standard library's decorator.
"""

from __future__ import annotations

import sys
from operator import attrgetter

__all__ = ["dataclass"]

TYPE_CHECKING = False  # importing typing takes longer than this module
if TYPE_CHECKING or sys.flags.dev_mode:
    from dataclasses import dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, kw_only=False):
        """Make a class a dataclass."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only)
        made = dataclasses.dataclass(cls, eq=False, repr=False, slots=slots, kw_only=kw_only)
        fields = dataclasses.fields(made)
        own = vars(cls)
        if "__repr__" not in own:
            made.__repr__ = _make_repr([field.name for field in fields if field.repr])
        if eq:
            values = _make_getter([field.name for field in fields if field.compare])
            if "__eq__" not in own:
                made.__eq__ = _make_eq(values)
            if own.get("__hash__") is None:  # Python itself sets None where a class defines __eq__
                made.__hash__ = (lambda self: hash(values(self))) if frozen else None
        return made

    def _make_getter(names):
        """Return the function that returns the fields of a value as a tuple."""
        if not names:
            return lambda _: ()
        return attrgetter(*names) if len(names) > 1 else attrgetter(*names * 2)  # one name alone would return no tuple

    def _make_eq(values):
        return lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def _make_repr(names):
        return lambda self: f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
