"""Turn a page (README, documentation) into the shell text of its blocks: line numbers stay the same. Nothing is executed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from dstui.adopt.shell.build_files import as_shell
from dstui.adopt.shell.job_files import job_as_shell
from dstui.adopt.signs import is_launch
from dstui.base.dataclass import dataclass

FENCE = re.compile(r"(?P<indent>[ \t>]*)(?P<mark>`{3,}|~{3,})[ \t]*\{?\.?(?P<language>[\w+-]*)[^`\n]*")
DIRECTIVE = re.compile(r"(?P<indent>[ \t]*)\.\.[ \t]+(?:code-block|code|sourcecode)::[ \t]*(?P<language>[\w+-]*)[ \t]*")
SHELL = (
    "bash",
    "sh",
    "shell",
    "zsh",
    "console",
    "shell-session",
    "shellscript",
    "terminal",
    "powershell",
    "cmd",
    "sbatch",
    "slurm",
    "text",
    "txt",
    "",
)
DATA = ("yaml", "yml", "json", "jsonc", "json5")
FILES = ("dockerfile", "docker", "makefile", "make")
CODE = (
    *(
        "python",
        "py",
        "python3",
        "pycon",
        "ipython",
        "toml",
        "ini",
        "diff",
        "html",
        "xml",
        "css",
        "js",
        "javascript",
        "ts",
        "c",
        "cpp",
        "cuda",
    ),
    *("rust", "go", "java", "r", "julia", "sql", "csv", "log", "latex", "mermaid", "fish"),
)
"""Languages of which no block is shell text; pages name many others by mistake."""
WITHOUT_LANGUAGE = ("", "text", "txt")
STARTS_AS_SHELL = re.compile(r"\s*(?:#|\$ |!|%|cd |export |source |conda |pip |uv |git |python|[A-Z_]+=)")


@dataclass(frozen=True, slots=True)
class Block:
    """The shell text of a block, and the index of its first line."""

    at: int
    lines: tuple[str, ...]


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page that are shell text or describe jobs; none if none has a launch, or if all is one block."""
    lines = text.split("\n")
    found, starts, inside = list[Block](), False, set[int]()
    for at, end, language in _bounds(lines):
        body = textwrap.dedent("\n".join(line.lstrip(">") if line.startswith(">") else line for line in lines[at:end]))
        inside.update(range(at - 1, end + 1))
        if language in DATA or (language in WITHOUT_LANGUAGE and not STARTS_AS_SHELL.match(body) and not is_launch(body)):
            made = job_as_shell(body)
            body, job = made or "", made is not None
        else:
            shell = language in SHELL or language in FILES or (language not in CODE and is_launch(body))
            body, job = (as_shell(body) if shell else ""), False
        if body.strip():
            starts = starts or job or is_launch(body)
            found.append(Block(at, tuple(body.rstrip("\n").split("\n"))))
    prose = any(line.strip() and at not in inside for at, line in enumerate(lines))
    return found if starts and prose else []


def page_of(blocks: Sequence[Block]) -> str:
    """Return the text of blocks at their lines."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.at - len(lines))
        lines += block.lines
    return "\n".join(lines) + "\n"


def _bounds(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the first line, the line after the last, and the language of each block."""
    at = 0
    while at < len(lines):
        start = at + 1
        if opened := FENCE.fullmatch(lines[at]):
            closing = opened["mark"]
            end = next((to for to in range(start, len(lines)) if lines[to].strip(" \t>").startswith(closing)), len(lines))
            yield start, end, opened["language"].lower()
            at = end + 1
        elif directive := DIRECTIVE.fullmatch(lines[at]):
            depth = len(directive["indent"].expandtabs())
            end = next((to for to in range(start, len(lines)) if _ends(lines[to], depth)), len(lines))
            while start < end and (not lines[start].strip() or lines[start].strip().startswith(":")):
                start += 1
            yield start, end, directive["language"].lower()
            at = max(end, at + 1)
        else:
            at += 1


def _ends(line: str, depth: int) -> bool:
    return bool(line.strip()) and len(line.expandtabs()) - len(line.expandtabs().lstrip()) <= depth
