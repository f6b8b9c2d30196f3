"""Turn a Dockerfile or a Makefile into the shell text that it would run, line by line: line numbers stay the same. Nothing is executed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator

INSTRUCTION = re.compile(r"[ \t]*([A-Z]{3,11})[ \t]+(.*)", re.DOTALL)
DOCKERFILE = re.compile(r"\A(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\n)*[ \t]*(?:FROM[ \t]+\S|(?:CMD|ENTRYPOINT)[ \t]+\[)")
"""The first instruction of an image, or a pasted command of one."""
RULE = re.compile(r"(?m)^(?!\t)[\w./%$(){} -]+:(?=\s).*(?<!\\)(?:\n(?:[ \t]*#.*)?)*\n\t[ \t]*\S")
"""A target of a Makefile and the first line of its recipe."""
MAKE_LINE = re.compile(r"\t|[\w./%$(){} -]+:(?:\s|$)|[ \t]*(?:#.*|-?include\b.*|ifn?(?:eq|def)\b.*|else\b.*|endif\b.*|(?:un)?export\b.*)?$")
"""The beginning of a line of a Makefile that sets no variable."""
VARIABLE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_.][\w.-]*)[ \t]*(:{0,3}|\?|\+)=[ \t]*(.*)", re.DOTALL)
REFERENCE = re.compile(r"\$\$|\$\((?:shell[ \t]+([^()]*)|([A-Za-z_]\w*))\)")
CONDITION = re.compile(
    r"(?P<otherwise>else[ \t]+)?if(?P<no>n)?(?:eq[ \t]*\((?P<left>[^,]*),(?P<right>.*)\)|def[ \t]+(?P<name>[A-Za-z_]\w*))"
)
COMMANDS = ("ENTRYPOINT", "CMD")
RULE_HEAD = re.compile(r"(?P<target>[\w./%-][\w./% -]*):{1,2}(?!=)(?P<needs>[^\n]*)")
AUTOMATIC = re.compile(r"\$\$?(?:([@<^])|\(([@<^])\))")
"""The name of the target, of the first file that it needs, or of all. `$$@` is the shell's own."""


def as_shell(text: str) -> str:
    """Return the shell text of a Dockerfile or Makefile; other texts as they are."""
    if text.startswith("#!"):
        return text
    if DOCKERFILE.match(text):
        return _translated(text, _dockerfile_translation(text))
    return _translated(text, _Makefile().translated) if _is_makefile(text) else text


def _is_makefile(text: str) -> bool:
    """Return whether a text has a recipe, and nothing that a Makefile would not have."""
    if not RULE.search(text):
        return False
    return all(MAKE_LINE.match(whole.rstrip("\n")) or VARIABLE.match(whole) for whole in _whole_lines(text))


def _translated(text: str, translate: Callable[[str], str]) -> str:
    """Translate each line together with those that continue it; the result has as many lines."""
    pairs = ((whole, translate(whole)) for whole in _whole_lines(text))
    return "".join(new + "\n" * (whole.count("\n") - new.count("\n")) for whole, new in pairs)


def _whole_lines(text: str) -> Iterator[str]:
    """Yield lines with their ends, each with the lines that continue it."""
    whole = ""
    for line in text.splitlines(keepends=True):
        whole += line
        if not line.rstrip().endswith("\\"):
            yield whole if whole.endswith("\n") else f"{whole}\n"
            whole = ""
    if whole:
        yield f"{whole.rstrip()[:-1]}\n"


def _dockerfile_translation(text: str) -> Callable[[str], str]:
    """Return the translation of instructions: only the last command of an image runs, with the words of its entry point before."""
    last = {found[1]: whole for whole in _whole_lines(text) if (found := INSTRUCTION.match(whole)) and found[1] in COMMANDS}
    entry, command = (_words(last[name]) if name in last else None for name in COMMANDS)

    def translate(whole: str) -> str:
        found = INSTRUCTION.match(whole)
        name, rest = (found[1], found[2]) if found and found[2].strip() else ("", "")
        if name == "ENV":
            pairs = rest if re.match(r"\w+=", rest) else "=".join((rest.split(None, 1)[0], shlex.quote(rest.partition(" ")[2].strip())))
            return f"export {pairs.rstrip()}\n"
        if name == "WORKDIR":
            return f"cd {rest.strip()}\n"
        if name not in COMMANDS or whole != last[name] or (name == "CMD" and entry):
            return "\n"
        words = [*(entry or ()), *(command or ())] if name == "ENTRYPOINT" else command
        return f"{shlex.join(words)}\n" if words else rest

    return translate


def _words(whole: str) -> list[str] | None:
    """Return the words of a command in brackets; None for one that a shell runs."""
    found = INSTRUCTION.match(whole)
    try:
        words = json.loads((found[2] if found else "").replace("\\\n", ""))
    except (ValueError, RecursionError):
        return None
    return [str(word) for word in words] if isinstance(words, list) else None


class _Makefile:
    """Translates the lines of a Makefile: a recipe may name its target and what that needs."""

    def __init__(self) -> None:
        self.target = self.needs = ""

    def translated(self, whole: str) -> str:
        """Return the shell text of a line with those that continue it."""
        if whole.startswith("\t"):
            return _makefile_line(AUTOMATIC.sub(self._named, whole))
        if (rule := RULE_HEAD.match(whole)) and not VARIABLE.match(rule["needs"]):
            self.target, self.needs = rule["target"].split()[0], rule["needs"].partition("#")[0].strip().removesuffix("\\")
        return _makefile_line(whole)

    def _named(self, found: re.Match[str]) -> str:
        """Return the value of an automatic variable; a variable of the shell for a target with a pattern."""
        value = {"@": self.target, "<": self.needs.partition(" ")[0], "^": self.needs}[found[1] or found[2]]
        if found[0].startswith("$$") or not value:
            return found[0]
        return "$(TARGET)" if "%" in value else value.replace("$", "$$")


def _makefile_line(whole: str) -> str:
    """Return a variable as an assignment, and a line of a recipe as a command in a shell of its own."""
    if whole.startswith("\t"):
        command = re.sub(r"\n\t", "\n", whole.strip("\t \n").lstrip("@-+"))
        return f"( {_dollars(command)} )\n" if "#" not in command else f"{_dollars(command)}\n"
    if (found := VARIABLE.match(whole)) and found[1].isidentifier():
        value = _quoted(re.sub(r"[ \t]*\\\n[ \t]*", " ", found[3]).partition(" #")[0])
        return f'{found[1]}+=" "{value}\n' if found[2] == "+" else f"{found[1]}={value}\n"
    return f"{_condition(whole.strip())}\n"


def _condition(line: str) -> str:
    """Return a line of make's conditionals as one of the shell's; "" for another line."""
    if line in ("else", "endif"):
        return {"else": "else :", "endif": "fi"}[line]
    if found := CONDITION.fullmatch(line):
        start = "elif" if found["otherwise"] else "if"
        if found["name"]:
            return f'{start} [ -{"z" if found["no"] else "n"} "${{{found["name"]}}}" ]; then :'
        left, right = (_quoted(found[one]) for one in ("left", "right"))
        return f"{start} [ {left} {'!=' if found['no'] else '='} {right} ]; then :"
    return ""


def _quoted(text: str) -> str:
    """Return a text of make in quotes."""
    return f'"{_dollars(text.strip())}"' if '"' not in text else shlex.quote(text.strip())


def _dollars(text: str) -> str:
    """Return a text of make with the shell's own spelling of variables."""
    return REFERENCE.sub(lambda found: "$" if found[0] == "$$" else f"$({found[1]})" if found[1] else f"${{{found[2]}}}", text)
