"""Who may change a file: what others than its owner may write is not trusted."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress

WITHOUT_MEMBERS = ("root", "staff")
"""Groups of the system's own folders, in which nobody is unless an administrator says so."""


def others_may_write(found: os.stat_result) -> bool:
    """Return whether others may change what is there. In a folder with the sticky bit they may only add to it."""
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not is_private(found.st_gid, found.st_uid)))


def is_private(group: int, user: int) -> bool:
    """Return whether a group has nobody but this user in it: distributions make one for each user, and have some without any member."""
    with suppress(KeyError):
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
        return found.gr_name in (name, *WITHOUT_MEMBERS) and set(found.gr_mem) <= {name}
    return False
