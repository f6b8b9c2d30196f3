"""The code says what the field says: words that were private to it do not come back, as names or in what stands beside the code."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests import source
from tests.source import FILES, ROOT, text_of

pytestmark = source.TOGETHER

NAMES = {
    # word: what to say
    "barred": "disabled",
    "saw": "found, probed",
    "seen": "observed, known, visible",
    "told": "reported",
    "said": "reported, sentences",
    "piece": "rule, chunk, fragment, part",
    "advice": "recommendation",
    "advise": "recommend",
    "wish": "requirement",
    "wishes": "requirements",
    "fold": "dedup",
    "folded": "deduplicated",
    "voice": "source",
    "voices": "sources",
    "crowd": "rank summary",
    "climb": "escalate",
    "ladder": "escalation",
    "front": "owner",
    "judged": "validated, evaluated, decided",
    "oracle": "reference",
}
"""Words that no identifier and no file's name is made of."""
FUNCTIONS = {"look": "probe, read, inspect", "looks": "probe", "looked": "probed", "see": "observe", "sees": "visible"}
"""The same for names of functions and classes; in a text they are plain English."""
TEXTS = {word: NAMES[word] for word in ("barred", "wishes", "crowd", "ladder", "oracle", "voices", "advise")}
"""Of these, those that docstrings and comments do not have either."""
CONTRACTS = re.compile(r"--(?:no-)?oracle|\boracle/|args\.(?:no_)?oracle|\"oracle\"|\"front\"|dstui[./]oracle")
"""Where such a word is part of a contract: the option, the package that runs under the job's interpreter, a key of status.json."""

FIELDS = {"id", "attr", "arg", "name", "asname"}
"""Of the nodes of a syntax tree: those that hold an identifier."""


@cache
def parts_of(name: str) -> list[str]:
    """look_up -> look, up; OnDisk -> on, disk"""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def names_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, bool]]:
    """Line and name of each identifier, and whether it is that of a function or a class."""
    for node in nodes:
        for field in FIELDS & {*node._fields}:
            if isinstance(name := getattr(node, field), str):
                yield getattr(node, "lineno", 0), name, isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def private_names(path: Path) -> Iterator[str]:
    """Identifiers, and the file's own name."""
    lines = ["", *text_of(path).splitlines()]
    for number, name, defined in names_of(source.nodes_of(path)):
        if not CONTRACTS.search(lines[number]):
            words = NAMES | FUNCTIONS if defined else NAMES
            yield from (f"line {number}: {name}: {words[part]}" for part in parts_of(name) if part in words)
    yield from (f"the name of the file: {NAMES[part]}" for part in parts_of(path.stem) if part in NAMES)


def private_texts(path: Path) -> Iterator[str]:
    """Docstrings and comments."""
    if not any(word in text_of(path).lower() for word in TEXTS):
        return  # most files: reading them token by token takes longer than all else here
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            words = re.findall(r"[a-z]+", CONTRACTS.sub("", token.string.lower()))
            yield from (f"line {token.start[0]}: {word}: {TEXTS[word]}" for word in words if word in TEXTS)


def test_names_and_texts_use_the_fields_words() -> None:
    assert [f"{path.relative_to(ROOT)} {found}" for path in FILES for found in (*private_names(path), *private_texts(path))] == []


def test_the_list_finds_what_it_is_about(tmp_path: Path) -> None:
    file = tmp_path / "crowd.py"
    file.write_text(
        'def look_at(front_pid):\n    """What the oracle of `dstui/reference/` says."""\n    seen = {"front": 1}\n    lookup = 2\n'
    )
    assert len([*private_names(file)]) == 3 and len([*private_texts(file)]) == 1
