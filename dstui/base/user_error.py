"""Errors that a sentence explains to the user. The command line prints it and exits, so a command needs no handler for them."""


class UserError(Exception):
    """A request that cannot be met. Holds a sentence that says what is wrong, where, and what to do."""

    status = 2
    """The exit status of the command."""


class NoRun(UserError, LookupError):
    """There is no such run, or the name is ambiguous."""

    status = 1
