"""Read a shell text: its launches in order, which of them is intended, and what was assumed.

Pasted text is cleaned first: prompts, fences and line numbers go, and placeholders such as <your_path> become holes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dstui.adopt.shell.build_files import as_shell
from dstui.adopt.shell.expansion import line_of, literal
from dstui.adopt.shell.interpreter import ShellReader
from dstui.adopt.shell.job_files import LEFT_OUT, job_as_shell
from dstui.adopt.shell.job_values import values_of_job
from dstui.adopt.shell.notebook import notebook_as_shell
from dstui.adopt.shell.pages import Block, blocks_of, page_of
from dstui.adopt.shell.recognise import UNLIKELY, rank, recognise
from dstui.adopt.shell.shell_state import CLOSE, OPEN, Launch, Node, ShellContext, ShellLimit, ShellState, Value, hole, holes_in
from dstui.adopt.shell.task_files import tasks_as_shell
from dstui.adopt.shell.windows import batch_as_shell, is_batch, is_powershell
from dstui.adopt.slurm import VARIES_BY_JOB, batch_variables
from dstui.base.dataclass import dataclass
from dstui.base.line_numbers import without_line_numbers

NOT_SET = "which nothing in the text sets"
READ_AS_PAGE = "the text is a page: its blocks are read one after another as one shell would run them, with what earlier ones export"
MAX_REPAIRS = 20
"""Lines of a paste that are left out because they are not shell text."""


@dataclass(frozen=True, slots=True)
class ShellText:
    """The launches of a text."""

    launches: tuple[Launch, ...]
    """The likeliest kind first; within a kind, in the order of the text."""
    notes: tuple[str, ...]
    sources: Mapping[str, str]
    """Hole -> what it stands for in the text."""
    unseen: tuple[str, ...]
    """Commands that may start a launch which is not seen from here."""
    undecided: Mapping[str, int]
    """Variable -> the line of the branch that decides its value at run time."""
    unreached: str = ""
    """A launch that is written in the text but not reached: `torchrun in line 7`; only if no other one trains."""


class Unparsed(Exception):
    """A text that the parser refuses. Holds a `message` and its `line`."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message, self.line = message, line


Parse = Callable[[str], Node]
"""The syntax tree of a text. Raises Unparsed."""


def read_shell(text: str, context: ShellContext, parse: Parse) -> ShellText:
    """Read a text. Raises Unparsed and ShellLimit."""
    if OPEN in text or CLOSE in text:
        raise Unparsed("it has characters of Unicode's private use area")
    name = context.script or "SCRIPT"
    if is_powershell(text, name):
        raise Unparsed("it is a script of PowerShell, whose syntax is not that of bash: give its launch after `dstui import --`")
    text = batch_as_shell(text) if is_batch(text, name) else tasks_as_shell(text, name)
    if FISH.match(text) or name.endswith(".fish"):
        raise Unparsed(f"it is a script of fish, whose syntax is not that of bash: `dstui run --hold -- fish {name}` reads its launches")
    described = values_of_job(text)
    tree, text, sources, notes = _parsed(text, parse)
    reader = _followed(tree, text, context, described, arguments_are_open=False)
    if not reader.launches:
        reader = _followed(tree, text, context, described, arguments_are_open=True)
    ranked = sorted(((rank(one.launcher, one.words), bool(one.condition)), number) for number, one in enumerate(reader.launches))
    likely = [number for (how, _), number in ranked if how < UNLIKELY] or [number for _, number in ranked]
    launches = [_with_holes(reader.launches[number], sources) for number in likely]
    unknowns = reader.unknowns
    return ShellText(
        tuple(_distinct(launches)),
        (*notes, *unknowns.assumptions, *_about_moments(launches, unknowns.moments)),
        {**sources, **{name: _with_comment(name, source, text) for name, source in unknowns.sources.items()}},
        tuple(dict.fromkeys(unknowns.unseen)),
        reader.undecided,
        "" if any(how < UNLIKELY for (how, _), _ in ranked) else next(_written_launches(tree), ""),
    )


def _parsed(pasted: str, parse: Parse) -> tuple[Node, str, dict[str, str], list[str]]:
    """Return the tree of a text, the text as it was parsed, its placeholders, and notes. Raises Unparsed."""
    if (job := job_as_shell(pasted)) is not None:
        tree, text, notes = _tree(job, parse)
        return tree, text, {}, [LEFT_OUT, *notes]
    blocks = blocks_of(pasted)
    text, sources = with_holes(cleaned(page_of(blocks) if blocks else pasted))
    try:
        tree, text, notes = _tree(text, parse)
    except Unparsed:
        if blocks:
            again, about = page_of([block for block in blocks if _is_shell(block, parse)]), "blocks that are not shell text are left out"
        else:
            again, about = prompted(pasted), "lines without a prompt are read as output, not as shell text"
        text, sources = with_holes(cleaned(again))
        if not text.strip():
            raise
        tree, text, notes = _tree(text, parse)
        notes = [about, *notes]
    return tree, text, sources, [READ_AS_PAGE, *notes] if len(blocks) > 1 else notes


def _is_shell(block: Block, parse: Parse) -> bool:
    try:
        parse(with_holes(cleaned("\n".join(block.lines)))[0])
    except Unparsed:
        return False
    return True


def _written_launches(tree: Node) -> Iterator[str]:
    """Yield the commands of a text that begin with a launcher, in any branch or function, with the line of the innermost `if`."""
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    for node, condition in waiting:  # the list grows meanwhile
        if isinstance(node, dict) and node.get("Type") == "IfClause":
            condition = line_of(node)  # noqa: PLW2901
        waiting += [(one, condition) for one in (node.values() if isinstance(node, dict) else node) if isinstance(one, dict | list)]
        if isinstance(node, dict) and node.get("Type") == "CallExpr":
            found = recognise([literal(word) for word in node.get("Args") or ()])
            if found is not None and found.launcher not in ("shell", "script", "python"):
                under = f", under the condition in line {condition}," if condition else ""
                yield f"{found.launcher} in line {line_of(node)}{under}"


def _about_moments(launches: Sequence[Launch], moments: Collection[str]) -> Iterator[str]:
    """Yield a note if a launch contains the output of `date`."""
    texts = [text for launch in launches for text in launch.texts]
    if moment := next((one for one in sorted(moments) if one and any(one in text for text in texts)), ""):
        yield f"$(date) is the time of each launch; the Plan has that of this reading ({moment})"


def undecided_in(launch: Launch, shell: ShellText) -> list[tuple[str, int]]:
    """Return the variables of a launch that a branch decides at run time, each with the branch's line."""
    names = dict.fromkeys(name for text in launch.texts for kind, name in holes_in(text) if kind == "undecided")
    return [(name, shell.undecided.get(name, 0)) for name in names]


def _with_comment(name: str, source: str, text: str) -> str:
    """Return what a hole stands for; with the value that a comment of the text proposes for it."""
    proposed = re.search(rf"(?m)^[ \t]*#+[ \t]*(?:export[ \t]+)?({re.escape(name)}=[^\s#]+)", text) if source.endswith(NOT_SET) else None
    if proposed is None:
        return source
    return f"{source}; the comment in line {text.count(chr(10), 0, proposed.start(1)) + 1} has {proposed[1]}"


def _with_holes(launch: Launch, sources: dict[str, str]) -> Launch:
    return replace(launch, words=tuple(word_with_hole(word, sources) for word in launch.words))


def _followed(tree: Node, text: str, context: ShellContext, described: Mapping[str, str], *, arguments_are_open: bool) -> ShellReader:
    reader = ShellReader(context, arguments_are_open=arguments_are_open)
    reader.unknowns.batch = batch = batch_variables(text)
    numbers: dict[str, Value] = {name: value for name, value in batch.items() if name not in VARIES_BY_JOB}
    for name in sorted(numbers):
        if f"${name}" in text or f"${{{name}" in text:
            reader.unknowns.note(f"${name} is {numbers[name]}, as the #SBATCH lines say")
    for name in sorted(described):
        if f"${name}" in text or f"${{{name}" in text:
            reader.unknowns.note(f"${name} is {described[name]}, as the job's description says")
    numbers |= described
    try:
        reader.follow(tree, text, ShellState(context.folder, numbers))
        if not reader.launches:
            reader.follow_quoted()
    except ShellLimit:
        if not reader.launches:
            raise
    except RecursionError:
        raise ShellLimit("it is nested too deeply") from None
    return reader


def _tree(text: str, parse: Parse) -> tuple[Node, str, list[str]]:
    """Parse a text. Lines of a paste that are not shell text are left out and noted."""
    notes: list[str] = []
    lines = text.split("\n")
    while True:
        text = "\n".join(lines)
        try:
            return parse(text), text, notes
        except Unparsed as problem:
            open_end = "reached EOF" in problem.message or "without" in problem.message or "must be" in problem.message
            if open_end or not 1 <= problem.line <= len(lines) or len(notes) == MAX_REPAIRS or not lines[problem.line - 1].strip():
                raise
            notes.append(f"line {problem.line} is not shell text ({problem.message}) and is left out")
            lines[problem.line - 1] = ""


def _distinct(launches: list[Launch]) -> list[Launch]:
    """Drop launches that repeat an earlier one."""
    found: list[Launch] = []
    for launch in launches:
        if not any(
            (one.launcher, one.words, one.env, one.folder) == (launch.launcher, launch.words, launch.env, launch.folder) for one in found
        ):
            found.append(launch)
    return found


FISH = re.compile(r"#!\S*(?:/env[ \t]+(?:-\S+[ \t]+)?|/)fish\b|(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*set[ \t]+-(?:g?x|xg|Ux)[ \t]+[A-Z_]+[ \t]+\S")
"""The first line of a script of fish, or its first command, which exports a variable."""
FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+(?::[^\s$#]*)?[ \t]*)?[$%❯][ \t]+(?=\S)", re.MULTILINE)
CONTINUED = re.compile(r"^[ \t]*>[ \t]+", re.MULTILINE)
LISTED = re.compile(
    r"^[ \t]*-[ \t]+(?=(?:\w+=\S+[ \t]+)*(?:deepspeed|torchrun|accelerate[ \t]+launch|uv[ \t]+run|llamafactory-cli)[ \t]+\S)", re.MULTILINE
)
"""The dash before a launch in a list, of YAML (`commands:` of a job's description) or of a page."""
PLACEHOLDER = re.compile(
    r"(?<![<\w&])<((?=[^>]*[^\W\d])(?:[\w.][\w .:/|,-]{0,60}?|/[\w./-]{1,60}(?=>(?:\s|$))))(?<!\s)>(?=[\s/.\-_:,;\"')]|$)"
)
TEMPLATE = re.compile(r"\$?\{\{-?[ \t]*([A-Za-z_][\w.-]*)[^{}\n]{0,80}\}\}")
"""A value that a templating engine fills in: Jinja, Helm, cookiecutter."""
WHOLE_WORD = re.compile(r"<((?i:your|path)[\w .-]*|[\w .-]*(?i:path|dir|folder|file|name))>")
"""A word that is a placeholder, also in quotes. `<image>` and `<|im_end|>` are tokens of models instead."""
QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|(?:^|(?<=\s))#[^\n]*", re.DOTALL | re.MULTILINE)
"""Text that contains no placeholders: quotes, an escaped character, a comment."""


def cleaned(text: str) -> str:
    """Return the shell text of a paste. Line numbers stay the same."""
    text = FENCE.sub("", notebook_as_shell(text).replace("\r\n", "\n"))
    text = LISTED.sub("", as_shell(without_line_numbers(text)))
    if PROMPT.search(text):
        text = CONTINUED.sub("", PROMPT.sub("", text))
    return re.sub(r"\\[ \t]*\Z", "", text.rstrip()) + "\n"


def prompted(text: str) -> str:
    """Return a pasted terminal without the output between its commands: lines with a prompt, and those that continue them."""
    kept: list[str] = []
    for line in text.split("\n"):
        goes_on = bool(kept) and (kept[-1].rstrip().endswith("\\") or (bool(kept[-1]) and CONTINUED.match(line) is not None))
        kept.append(line if goes_on or PROMPT.match(line) else "")
    return "\n".join(kept)


def with_holes(text: str) -> tuple[str, dict[str, str]]:
    """Return the text with a hole for each <placeholder> outside of quotes, and the original text of each hole."""
    sources: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        return _hole_for(match, sources)

    parts, at = [], 0
    for quoted in QUOTED.finditer(text):
        parts += [_unquoted(text[at : quoted.start()], replaced), quoted[0]]
        at = quoted.end()
    return "".join([*parts, _unquoted(text[at:], replaced)]), sources


def _unquoted(text: str, replaced: Callable[[re.Match[str]], str]) -> str:
    return PLACEHOLDER.sub(replaced, TEMPLATE.sub(replaced, text))


def word_with_hole(word: str, sources: dict[str, str]) -> str:
    """Return the word, or a hole if it is a placeholder; `sources` collects the original text."""
    match = WHOLE_WORD.fullmatch(word)
    return _hole_for(match, sources) if match else word


def _hole_for(match: re.Match[str], sources: dict[str, str]) -> str:
    base = re.sub(r"[^A-Za-z0-9_]+", "_", match[1]).strip("_").upper() or "PLACEHOLDER"
    base = f"_{base}" if base[0].isdigit() else base
    for number in itertools.count(1):
        name = base if number == 1 else f"{base}_{number}"
        if sources.setdefault(name, match[0]) == match[0] or base != "PLACEHOLDER":
            return hole("unset", name)
    raise AssertionError
