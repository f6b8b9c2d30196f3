"""Clean pasted shell text: remove prompts, fences and line numbers, and turn placeholders such as <your_path> into holes. Pure."""

from __future__ import annotations

import itertools
import re

from dstui.adopt.shell.shell_state import hole

FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+(?::[^\s$#]*)?)?[ \t]*[$%❯][ \t]+(?=\S)", re.MULTILINE)
CONTINUED = re.compile(r"^[ \t]*>[ \t]+", re.MULTILINE)
NUMBERED = re.compile(r"^[ \t]*(\d{1,5})(?:[ \t]*[|:│])?(?:[ \t]+|$)(.*)$")
PLACEHOLDER = re.compile(
    r"(?<![<\w&])<((?=[^>]*[^\W\d])(?:[\w.][\w .:/|,-]{0,60}?|/[\w./-]{1,60}(?=>(?:\s|$))))(?<!\s)>(?=[\s/.\-_:,;\"')]|$)"
)
WHOLE_WORD = re.compile(r"<((?i:your|path)[\w .-]*|[\w .-]*(?i:path|dir|folder|file|name))>")
"""A word that is a placeholder, also in quotes. `<image>` and `<|im_end|>` are tokens of models instead."""
QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|(?:^|(?<=\s))#[^\n]*", re.DOTALL | re.MULTILINE)
"""Text that contains no placeholders: quotes, an escaped character, a comment."""


def cleaned(text: str) -> str:
    """Return the shell text of a paste. Line numbers stay the same."""
    text = FENCE.sub("", text.replace("\r\n", "\n"))
    text = _without_numbers(text)
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


def _without_numbers(text: str) -> str:
    """Remove a column of line numbers if every line has the next one."""
    lines = text.split("\n")
    matches = [NUMBERED.match(line) for line in lines if line.strip()]
    numbers = [int(match[1]) for match in matches if match]
    if len(numbers) < 2 or len(numbers) != len(matches) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return text
    return "\n".join(match[2] if (match := NUMBERED.match(line)) else line for line in lines)


def with_holes(text: str) -> tuple[str, dict[str, str]]:
    """Return the text with a hole for each <placeholder> outside of quotes, and the original text of each hole."""
    sources: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        return _hole_for(match, sources)

    parts, at = [], 0
    for quoted in QUOTED.finditer(text):
        parts += [PLACEHOLDER.sub(replaced, text[at : quoted.start()]), quoted[0]]
        at = quoted.end()
    return "".join([*parts, PLACEHOLDER.sub(replaced, text[at:])]), sources


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
