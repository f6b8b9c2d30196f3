"""Plans to start from, by name: those of the site, then those that come with dstui."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dstui.base.files import FileProblem, is_file, read_text
from dstui.site.installed import installed_site
from dstui.site.site_file import Site

MOST = 200
"""Templates of a folder that are listed."""
ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Template:
    """A Plan to start from. `purpose` is its first comment line."""

    name: str
    path: Path
    purpose: str


def site_templates(site: Site | None = None) -> Iterator[Template]:
    """Yield the templates of a site, by default of the installed one."""
    site = site or installed_site().site
    if site is None or not site.templates:
        return
    with suppress(OSError, ValueError):
        found = sorted(path for path in islice(Path(site.templates).iterdir(), MOST) if path.suffix in ENDINGS and is_file(path))
        yield from (Template(path.stem, path, _purpose(path)) for path in found)


def site_template(name: str) -> Path | None:
    """Return the file of a site's template; None if it has none of this name."""
    return next((template.path for template in site_templates() if template.name == name), None) if "/" not in name else None


def _purpose(path: Path) -> str:
    with suppress(FileProblem):
        first = next(iter(read_text(path).splitlines()), "")
        return first.lstrip("# ").strip()[:200] if first.startswith("#") else ""
    return "cannot be read"
