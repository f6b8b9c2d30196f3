"""The files that a site wants in every bundle: the configuration of the network, a log of the driver."""

from __future__ import annotations

from pathlib import Path

from dstui.base.files import FileProblem, reason
from dstui.base.regular_files import read_regular
from dstui.site.installed import installed_site

MOST = 1 << 20
"""Bytes of each, from its end."""


def site_files() -> dict[str, str]:
    """Return the wanted files, name in the bundle -> text; why one cannot be read stands in its place."""
    site = installed_site().site
    return {f"site/{path.strip('/').replace('/', '_')}": _text(Path(path)) for path in (site.bundle if site is not None else ())}


def _text(path: Path) -> str:
    try:
        return read_regular(path, max(path.stat().st_size - MOST, 0), MOST).decode(errors="backslashreplace")
    except FileProblem as problem:
        return f"{problem}\n"
    except (OSError, ValueError) as error:
        return f"{path}: {reason(error)}\n"
