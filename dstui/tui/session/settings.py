"""What a user likes and dstui remembers: the theme and the like, one small JSON file in the user's configuration folder.

Nothing about it is ever an error: what cannot be read is as if it were not there, and what cannot be written holds for this session.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, read_text, write_atomic
from dstui.base.limits import parse_json


def settings_file() -> Path:
    """Return where they lie."""
    from platformdirs import user_config_path

    return user_config_path("dstui") / "settings.json"


def remembered() -> dict[str, Any]:
    """Return all settings."""
    return _read() or {}


def remember(name: str, value: Any) -> None:
    """Keep one setting for later sessions. The others stay as they are, and so does a file that is no settings of ours."""
    import json

    settings = _read()
    if settings is not None and settings.get(name) != value:
        with suppress(FileProblem, OSError):
            settings_file().parent.mkdir(parents=True, exist_ok=True)
            write_atomic(settings_file(), json.dumps({**settings, name: value}, indent=2) + "\n", replace=True)


def _read() -> dict[str, Any] | None:
    """Return what is in the file, {} where there is none; None where it cannot be read, so must not be replaced."""
    file = settings_file()
    if not file.exists():
        return {}
    try:
        found = parse_json(read_text(file))
    except (FileProblem, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
