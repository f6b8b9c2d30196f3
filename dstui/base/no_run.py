"""The error for a name without a run: a module of its own, since every command may import it."""


class NoRun(LookupError):
    """There is no such run, or the name is ambiguous. Holds a sentence."""
