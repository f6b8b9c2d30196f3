"""Turn a batch file of Windows into the shell text that means the same, line by line: line numbers stay the same. Nothing is executed."""

from __future__ import annotations

import re
import shlex

SIGN = re.compile(r"(?i)\A\ufeff?(?:[ \t]*(?:(?:rem\b|::)[^\n]*)?\n)*[ \t]*@?echo[ \t]+off\b")
POWERSHELL = re.compile(r"(?im)^[ \t]*(?:param[ \t]*\(|\$env:\w+[ \t]*=|\[cmdletbinding|write-(?:host|output)\b)")
ENDINGS = (".bat", ".cmd")
IGNORED = re.compile(r"(?i)(?:rem\b|::|echo\b|setlocal\b|endlocal\b|pause\b|cls\b|title\b|color\b|chcp\b|exit\b|goto\b|:)")
"""Beginnings of lines without a meaning for a launch."""
SET = re.compile(r'(?i)set[ \t]+(?:"([A-Za-z_]\w*)=([^\n]*)"|([A-Za-z_]\w*)=([^\n]*))[ \t]*')
IF = re.compile(
    r'(?i)if[ \t]+(?P<no>not[ \t]+)?(?:exist[ \t]+(?P<file>"[^"\n]*"|\S+)|"?(?P<left>[^"=\n]*)"?[ \t]*==[ \t]*'
    r'(?:"(?P<right>[^"\n]*)"|(?P<bare>[^\s("]*)))[ \t]*(?P<then>.*)'
)
VARIABLE = re.compile(r"%(?P<argument>[1-9*]|~[1-9])|%(?P<folder>~dp0)|%(?P<name>[A-Za-z_]\w*)(?:[:~][^%\n]*)?%|!(?P<late>[A-Za-z_]\w*)!")


def is_batch(text: str, name: str) -> bool:
    """Return whether a text is a batch file."""
    return name.lower().endswith(ENDINGS) or SIGN.match(text) is not None


def is_powershell(text: str, name: str) -> bool:
    """Return whether a text is a script of PowerShell."""
    return name.lower().endswith(".ps1") or (POWERSHELL.search(text) is not None and not text.startswith("#!"))


def batch_as_shell(text: str) -> str:
    """Return the shell text of a batch file."""
    text = text.replace("\r\n", "\n").replace("\\", "/")
    commands = re.sub(r"(?im)^[ \t]*@?(?:rem\b|::|echo\b)[^\n]*", "", text)
    used = {found["name"] or found["late"] for found in VARIABLE.finditer(commands)}
    lines = re.sub(r"\^[ \t]*\n", "\\\\\n", text).split("\n")
    return "\n".join(_line(line, used) for line in lines)


def _line(line: str, used: set[str | None]) -> str:
    words = line.strip().removeprefix("@")
    if IGNORED.match(words):
        return ""
    if re.fullmatch(r"(?i)\)[ \t]*else[ \t]*\(", words):
        return "else :"
    if words == ")":
        return "fi"
    if found := IF.fullmatch(words):
        return _condition(found, used)
    if found := SET.fullmatch(words):
        name, value = found[1] or found[3], found[2] if found[1] else found[4]
        return f"{'' if name in used else 'export '}{name}={_value(value.strip())}"
    words = re.sub(r"(?i)^(?:call|start(?:[ \t]+/\w+)*)[ \t]+", "", words)
    words = re.sub(r"(?i)^cd[ \t]+/d[ \t]+", "cd ", words)
    return _with_variables(re.sub(r"(?i)>[ \t]*nul\b", ">/dev/null", re.sub(r"(?<![&>])&(?![&\d])", ";", words)))


def _condition(found: re.Match[str], used: set[str | None]) -> str:
    """Return `if … then`, for a block or one command."""
    left, right = (_value((side or "").strip()) for side in (found["left"], found["right"] or found["bare"]))
    test = f"-e {_value(found['file'].strip(chr(34)))}" if found["file"] else f"{left} = {right}"
    start = f"if {'! ' if found['no'] else ''}[ {test} ]; then"
    then = found["then"].strip()
    return f"{start} :" if then == "(" else f"{start} {_line(then, used) or ':'}; fi"


def _value(text: str) -> str:
    """Return a text as one word, in which only variables have a meaning."""
    return '"' + _with_variables(re.sub(r'(["`$])', r"\\\1", text)) + '"' if VARIABLE.search(text) else shlex.quote(text)


def _with_variables(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found["folder"]:
            return '$(dirname "$0")/'
        return f"${{{(found['argument'] or found['name'] or found['late']).lstrip('~').replace('*', '@')}}}"

    return VARIABLE.sub(replaced, text).replace("%%", "%")
