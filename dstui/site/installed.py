"""Find and read the site file of this machine and the user's settings.

An unusable file becomes a sentence, and dstui continues without it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_there, read_text
from dstui.base.files import reason as reason_of
from dstui.base.regular_files import open_regular, others_may_write
from dstui.base.text import sanitise
from dstui.plan.finding import Finding
from dstui.plan.load import PlanError
from dstui.site.settings import UserSettings, read_settings
from dstui.site.site_file import Site, read_site

SITE_FILE = Path("/etc/dstui/site.yaml")
VARIABLE = "DSTUI_SITE"
"""The variable with the path of another site file; empty means none."""


@dataclass(frozen=True)
class Installed:
    """A site, or why the existing file is not used."""

    site: Site | None = None
    problem: str = ""


def site_path() -> Path | None:
    """Return the path of the site file; None if the environment disables it."""
    name = os.environ.get(VARIABLE)
    return SITE_FILE if name is None else Path(name).absolute() if name else None


def settings_path() -> Path:
    """Return the path of the user's settings."""
    from platformdirs import user_config_path

    return user_config_path("dstui") / "settings.yaml"


def installed_settings() -> UserSettings:
    """Return the settings of this user, without any where the file is not there. Never raises."""
    path = settings_path()
    return _read_settings(path, _moment(path)) if is_there(path) else UserSettings(str(path))


@lru_cache(maxsize=4)
def _read_settings(path: Path, _moment: tuple[int, ...]) -> UserSettings:
    try:
        return read_settings(read_text(path), str(path), str(path.parent))
    except FileProblem as problem:
        return UserSettings(str(path), problems=(Finding("SETTINGS", "error", "", str(problem), when="parse"),))


def installed_site() -> Installed:
    """Return the site of this machine. Never raises."""
    path = site_path()
    if path is None or (not is_there(path) and VARIABLE not in os.environ):
        return Installed()
    return _read(path, _moment(path))


def _moment(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
        return (found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid, found.st_ino)
    except (OSError, ValueError):
        return ()


@lru_cache(maxsize=8)
def _read(path: Path, _moment: tuple[int, ...]) -> Installed:
    try:
        return Installed(open_site(path))
    except PlanError as error:
        return Installed(problem=str(error))
    except FileProblem as problem:
        return Installed(problem=str(problem))


def open_site(path: Path) -> Site:
    """Read a site file that nobody else may change. Raises FileProblem or PlanError."""
    return read_site(_text_of_trusted(path), str(path), str(path.absolute().parent))


def _text_of_trusted(path: Path) -> str:
    """Return the text of a file that only root or the user can write. Raises FileProblem."""
    try:
        opened = open_regular(path.resolve())
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: {reason_of(error)}") from None
    found = os.fstat(opened)
    folder = path.resolve().parent.stat()
    why = (
        f"it belongs to another user (uid {found.st_uid})"
        if found.st_uid not in (0, os.geteuid())
        else "others may write it (chmod go-w)"
        if others_may_write(found)
        else f"others may write its folder {path.resolve().parent} (chmod go-w)"
        if others_may_write(folder)
        else ""
    )
    if why:
        os.close(opened)
        raise FileProblem(f"{path}: {why}, so it is ignored")
    return read_text(path, opened)


def site_note(cause: str) -> str:
    """Return the site's note on a cause of failures, as one line that is safe to show; "" if it has none."""
    site = installed_site().site
    return sanitise(" ".join(site.causes.get(cause, "").split())) if site is not None else ""
