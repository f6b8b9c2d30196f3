"""Read the layers beneath a Plan (the site file, the files that it extends, the user's settings), and the Plans to start from by name.

Every face opens Plans with these functions, so that all see the same values. Templates are those of the site, then those of dstui.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_file, read_text, typed_path
from dstui.plan import Plan, PlanError, load
from dstui.plan.document import Document
from dstui.plan.finding import Finding
from dstui.plan.layers import Beneath, Layer
from dstui.plan.load import check_part, compose
from dstui.site.installed import installed_settings, installed_site
from dstui.site.settings import TOP
from dstui.site.site_file import Site

SCREEN_SETTINGS = frozenset(TOP) - {"version", "defaults"}
"""Settings of the screens: their mistakes do not concern a Plan."""
MAX_EXTENDED = 8
"""The longest chain of `extends`."""


def load_layered(text: str, source: str, base: str, *, site: bool = True) -> Plan:
    """Load a Plan from its text, with all layers beneath it. Raises PlanError."""
    document = compose(text, source)
    return load(text, source, base, beneath_document(document, source, base, site=site))


def beneath_document(document: Document, source: str, base: str, *, site: bool) -> Beneath:
    """Return the layers beneath a Plan. Raises PlanError if a file that it extends cannot be used."""
    layers, problems = list[Layer](), list[str]()
    below = Beneath()
    if site:
        installed = installed_site()
        if installed.problem:
            problems.append(f"the site file is not used: {installed.problem}")
        if installed.site is not None:
            below = installed.site.beneath
    layers += _extended(document, source, base)
    settings = installed_settings()
    layers += [settings.layer] if settings.layer is not None else []
    problems += [
        f"your settings: {settings.sentence(wrong)}" for wrong in settings.problems if wrong.path.partition(".")[0] not in SCREEN_SETTINGS
    ]
    return Beneath((*below.layers, *layers), below.locks, tuple(problems), below.contact)


def _extended(document: Document, source: str, base: str) -> list[Layer]:
    """Return the files of a chain of `extends`, the last one first. Raises PlanError."""
    found: list[Layer] = []
    seen = [Path(base, Path(source).name).resolve()]
    while isinstance(document.data, dict) and (name := document.data.get("extends")):
        line = document.line_of(("extends",))
        if not isinstance(name, str):
            raise _refused(source, line, "expected the path of a file, as text")
        path = Path(base, typed_path(name))
        if path.resolve() in seen:
            raise _refused(source, line, f"{path} is extended by itself ({' -> '.join(one.name for one in (*seen, path))})")
        if len(seen) > MAX_EXTENDED:
            raise _refused(source, line, f"a chain of more than {MAX_EXTENDED} files: merge some of them")
        try:
            text = read_text(path)
        except FileProblem as problem:
            raise _refused(source, line, str(problem)) from None
        seen.append(path.resolve())
        source, base = str(path), str(path.absolute().parent)
        document = compose(text, source)
        check_part(document, (), source)
        found.insert(0, Layer("extends", source, base, document))
    return found


def _refused(source: str, line: int | None, message: str) -> PlanError:
    return PlanError([Finding("PLAN", "error", "extends", message, when="parse", line=line)], source)


MAX_TEMPLATES = 200
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
        found = sorted(path for path in islice(Path(site.templates).iterdir(), MAX_TEMPLATES) if path.suffix in ENDINGS and is_file(path))
        yield from (Template(path.stem, path, _purpose(path)) for path in found)


def site_template(name: str) -> Path | None:
    """Return the file of a site's template; None if it has no such template."""
    return next((template.path for template in site_templates() if template.name == name), None) if "/" not in name else None


def _purpose(path: Path) -> str:
    with suppress(FileProblem):
        first = next(iter(read_text(path).splitlines()), "")
        return first.lstrip("# ").strip()[:200] if first.startswith("#") else ""
    return "cannot be read"
