"""`dataclass`, like that of the standard library, but created in a third of the time.

`dataclasses.dataclass` compiles the source of up to six methods per class, which was nearly half of the start of a command. Here only
`__init__` is compiled, and only when the first value of the class is made. mypy reports assignments to frozen fields; at run time they
fail in Python's development mode (`python -X dev`), which uses the standard library's decorator.
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
        made = dataclasses.dataclass(cls, init=False, eq=False, repr=False, slots=slots, kw_only=kw_only)
        fields = dataclasses.fields(made)
        own = vars(cls)
        if "__init__" not in own:
            made.__init__ = _defer_init(made)
        if "__repr__" not in own:
            made.__repr__ = _make_repr([field.name for field in fields if field.repr])
        if eq:
            values = _make_getter([field.name for field in fields if field.compare])
            if "__eq__" not in own:
                made.__eq__ = _make_eq(values)
            if own.get("__hash__") is None:  # Python itself sets None where a class defines __eq__
                made.__hash__ = (lambda self: hash(values(self))) if frozen else None
        return made

    def _defer_init(cls):
        """Return an `__init__` that the compiled one replaces at its first call."""

        def init(self, *args, **values):
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, *args, **values)

        return init

    def _compile_init(cls):
        """Compile the `__init__` that the standard library's decorator would have given the class."""
        known = {"_ABSENT": dataclasses.MISSING}
        parameters, by_keyword, body = ["self"], [], []
        for field in dataclasses.fields(cls):
            name, value, default = field.name, field.name, ""
            if field.default_factory is not dataclasses.MISSING:
                known[f"_make_{name}"] = field.default_factory
                value, default = (f"_make_{name}() if {name} is _ABSENT else {name}" if field.init else f"_make_{name}()"), "=_ABSENT"
            elif field.default is not dataclasses.MISSING:
                known[f"_default_{name}"] = field.default
                value, default = (name if field.init else f"_default_{name}"), f"=_default_{name}"
            elif not field.init:
                continue  # __post_init__ sets it
            if field.init:
                (by_keyword if field.kw_only else parameters).append(name + default)
            body.append(f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        head = ", ".join([*parameters, *(["*", *by_keyword] if by_keyword else [])])
        exec(f"def __init__({head}):\n " + "\n ".join(body or ["pass"]), known)
        known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return known["__init__"]

    def _make_getter(names):
        """Return the function that returns the fields of a value as a tuple."""
        if not names:
            return lambda _: ()
        return attrgetter(*names) if len(names) > 1 else attrgetter(*names * 2)  # one name alone would return no tuple

    def _make_eq(values):
        return lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def _make_repr(names):
        return lambda self: f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
