"""Find out who may change a file: what others than its owner may write is not trusted."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress

WITHOUT_MEMBERS = ("root", "staff")
"""Groups of the system's own folders, which have no members unless an administrator adds some."""


def others_may_write(found: os.stat_result) -> bool:
    """Return whether others may change a file or folder. In a folder with the sticky bit they may only add files."""
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not is_private(found.st_gid, found.st_uid)))


def is_private(group: int, user: int) -> bool:
    """Return whether a group has no members but this user: distributions create one per user, and some groups without any member."""
    with suppress(KeyError):
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
        return found.gr_name in (name, *WITHOUT_MEMBERS) and set(found.gr_mem) <= {name}
    return False
