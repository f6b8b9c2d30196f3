"""Remove the user's name and the path of the home folder from a snapshot."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from typing import Any


def mask_names(data: Any, user: str | None = None, home: str | None = None) -> Any:
    """Replace the home folder by ~ and the user's name, as a whole word, by USER in plain data. Defaults are those of this process.

    The name root identifies nobody and stays.
    """
    user, home = user or _user(), home or os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody knows the user
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])") if user not in ("", "root") else None
    return _changed(data, home.rstrip("/"), word)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container with a user id that has no name
        return os.environ.get("USER", "")


def _changed(data: Any, home: str, word: re.Pattern[str] | None) -> Any:
    if isinstance(data, Mapping):
        return {key: _changed(value, home, word) for key, value in data.items()}
    if isinstance(data, list):
        return [_changed(value, home, word) for value in data]
    if not isinstance(data, str):
        return data
    text = re.sub(rf"{re.escape(home)}(?=/|$)", "~", data) if home not in ("", "/root") else data
    return word.sub("USER", text) if word else text
