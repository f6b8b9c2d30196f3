"""Pages of causes: every id has one, and the sources that it cites exist."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from dstui.diagnosis import report
from dstui.diagnosis.recognition.subjects import FUNCTIONS, KINDS, MESSAGES, RAISERS
from dstui.diagnosis.reporting.pages import cause_pages, cause_titles, causes_document
from dstui.diagnosis.signatures import ALL, BY_ID
from tests.diagnosis.crash_texts import diagnose_lines, traceback


def test_every_cause_has_a_page_and_every_failure_a_fix() -> None:
    without_title, without_remedy = [], []
    for name in cause_titles():
        page = next(iter(cause_pages(name.lower())))
        signature = next(one for one in ALL if name in (one.id, one.answer))
        if signature.title not in " ".join(page.split()):
            without_title.append(name)
        if BY_ID[name].role in ("root", "symptom", "quiet") and name not in ("KILLED-UNKNOWN", "SIGABRT") and not BY_ID[name].remedies:
            without_remedy.append(name)
    assert (without_title, without_remedy) == ([], [])


def test_diagnosis_names_its_page(tmp_path: Path) -> None:
    said = report(diagnose_lines(tmp_path / "log", traceback(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB.")))
    assert "dstui docs OOM-GPU" in said
    assert "dstui docs" not in report(diagnose_lines(tmp_path / "b", ["step 1"]))


def test_alternative_cause_has_a_page_and_a_distinguishing_fact() -> None:
    tables = (*(one.alike for one in ALL), *(one.causes for one in (*MESSAGES, *FUNCTIONS)), *RAISERS.values(), *KINDS.values())
    named = {name for causes in tables for name in causes}
    for name in sorted(named):
        assert BY_ID[name].confirm, name
        assert BY_ID[name].role in ("root", "symptom", "quiet", "hint", "stop"), name
    for one in ALL:
        assert one.id not in one.alike, one.id


def test_causes_document_is_generated_from_the_signatures() -> None:
    document = Path(__file__).parents[2] / "docs" / "causes.md"
    assert document.read_text() == causes_document(), "regenerate it: dstui docs --causes > docs/causes.md"


def test_source_of_a_cause_exists() -> None:
    wrong, absent = [], set[str]()
    for signature in (one for one in ALL if one.source and not one.source.startswith(("https://", "http://"))):
        file, colon, wanted = signature.source.partition(":")
        assert colon, f"the source of {signature.id} is PATH/IN/A/PACKAGE.py:NAME or an address, else left out"
        name = file.partition("/")[0]
        package = find_spec(name)
        if package is None or package.origin is None:
            absent.add(name)
        elif wanted not in defined_in(Path(package.origin).parent.parent / file):
            wrong.append(f"{file} has no {wanted}")
    assert wrong == []
    if absent:  # those of the installed packages were compared above; a skip says that not all were
        pytest.skip(f"the causes of packages that are not installed were left out: {', '.join(sorted(absent))}")


@cache
def defined_in(file: Path) -> frozenset[str]:
    """Return the names that a library's file defines."""
    return frozenset(getattr(node, "name", None) or "" for node in ast.walk(ast.parse(file.read_text())))
