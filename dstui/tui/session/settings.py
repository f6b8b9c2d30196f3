"""The user's settings as the TUI uses them: read again when their file changes, and written when something is chosen.

An unreadable file is reported at the start and then ignored. A setting that cannot be written holds for this session.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from dstui.base.files import FileProblem, is_there, make_folder, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.plan.document import DocumentError
from dstui.plan.splice import EditError
from dstui.site.installed import installed_settings, settings_path
from dstui.site.settings import BY_NAME, first_settings, usable, with_setting

_writing = Lock()


def setting(name: str) -> Any:
    """Return the value of a setting: the user's, else its default."""
    held = installed_settings().values
    if name in held:
        return held[name]
    return _read_old_file().get(name, BY_NAME[name].default)


def remember(name: str, value: Any) -> str:
    """Store a setting for later sessions; the rest of the file stays unchanged. Return why that failed; "" if it did not."""
    with _writing:
        path, old = settings_path(), _read_old_file()
        if setting(name) == value:
            return ""
        try:
            if is_there(path):
                text = read_text(path)
                for each, held in {**old, name: value}.items():
                    text = with_setting(text, each, held)
            else:
                text = first_settings({**old, name: value})
            make_folder(path.parent)
            write_atomic(path, text, replace=True)
        except (FileProblem, EditError, DocumentError, OSError) as error:
            return f"{path}: {error}" if not isinstance(error, FileProblem) else str(error)
        with suppress(OSError):
            _old_file().unlink(missing_ok=True)
    return ""


def _old_file() -> Path:
    """Return the file in which older releases of dstui stored settings."""
    return settings_path().with_suffix(".json")


def _read_old_file() -> Mapping[str, Any]:
    """Return the settings that an older dstui stored and the user's file does not contain."""
    if not is_there(_old_file()):
        return {}
    try:
        found = parse_json(read_text(_old_file()))
    except (FileProblem, OSError, ValueError):
        return {}
    held = installed_settings().values
    return {name: value for name, value in usable(found).items() if name not in held} if isinstance(found, dict) else {}
