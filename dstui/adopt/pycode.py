"""Collect from a Python text what a training script does: imported names, calls, options, assignments.

Pure: the text is parsed with the grammar of dstui's own Python and never run.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from dstui.base.dataclass import dataclass

LONGEST = 300_000
"""Characters of a script. transformers' whole Trainer has fewer, and a megabyte takes eight seconds."""
SWITCHES = ("store_true", "store_false", "count")


class NotPython(Exception):
    """The text cannot be parsed. Holds the line, if known, and a few words."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


class ScriptOption(NamedTuple):
    """An argument of the script's parser. `word` is "" for a positional one."""

    word: str
    name: str
    """The attribute with its value: args.NAME."""
    line: int
    switch: bool = False
    """True if it takes no value."""


class Import(NamedTuple):
    """An import: `from MODULE import NAMES`, or `import MODULE`; `level` is the number of leading dots."""

    module: str
    names: tuple[str, ...]
    level: int
    line: int


class Call(NamedTuple):
    """A call, by the full name of the callee: torch.optim.AdamW."""

    name: str
    node: ast.Call

    def value(self, *keywords: str, place: int | None = None) -> ast.expr | None:
        """Return the argument with one of these keywords, or at a position; None if it is missing or is None."""
        for keyword in self.node.keywords:
            if keyword.arg in keywords:
                return None if isinstance(keyword.value, ast.Constant) and keyword.value.value is None else keyword.value
        return self.node.args[place] if place is not None and place < len(self.node.args) else None


@dataclass
class Code:
    """The content of a script, or of a script and the modules that it imports. Line numbers of modules follow those of the script."""

    calls: list[Call] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    """Full name of what is used or imported -> the first line."""
    packages: set[str] = field(default_factory=set)
    """First names of the packages that it imports from; "" for its own folder (from . import x)."""
    used: set[str] = field(default_factory=set)
    """Those of the names that are used, not only imported."""
    options: list[ScriptOption] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    """String constants -> the first line."""
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    """Name or attribute (self.model) -> the values assigned to it, in any function."""
    unpacked: set[str] = field(default_factory=set)
    """Names and attributes that also get a part of a value: `model, optimizer = …`."""
    changed: set[str] = field(default_factory=set)
    """Names with other values than the assigned ones: parameters, names of loops, `x += …`, `x[0] = …`."""
    imports: list[Import] = field(default_factory=list)
    modules: list[tuple[int, str]] = field(default_factory=list)
    """For each module that was read after the script: the offset of its line numbers, and its file."""

    def place(self, line: int) -> str:
        """Describe where a line is."""
        added, file = next(((added, file) for added, file in reversed(self.modules) if line > added), (0, ""))
        return f"line {line - added} of {file}" if file else f"line {line}"

    def call(self, *names: str) -> Call | None:
        """Return the first call of one of these, by full name or its end: `initialize` matches deepspeed.initialize."""
        return next((call for call in self.calls if any(f".{call.name}".endswith(f".{name}") for name in names)), None)

    def option(self, *words: str) -> ScriptOption | None:
        """Return the first of these options that the parser has and that takes a value. Dashes match underscores."""
        spelled = {option.word.replace("-", "_"): option for option in self.options if not option.switch}
        return next((spelled[key] for word in words if (key := word.replace("-", "_")) in spelled), None)

    def inside(self, value: ast.expr) -> Iterator[ast.expr]:
        """Yield every part of a value, and of the values assigned to the names in it."""
        values, followed = [value], set[str]()
        for each in values:  # the list grows meanwhile
            for node in ast.walk(each):
                if isinstance(node, ast.expr):
                    yield node
                if isinstance(node, ast.Name) and node.id not in followed:
                    followed.add(node.id)
                    values += self.assigned.get(node.id, ())


def read_code(text: str) -> Code:
    """Parse a text and collect its content. Raises NotPython."""
    return _read(Code(), text, 0)


def add_module(code: Code, text: str, file: str, added: int) -> None:
    """Add a module of the script, with `added` added to its line numbers. Raises NotPython."""
    code.modules.append((added, file))
    _read(code, text, added)


def _read(code: Code, text: str, added: int) -> Code:
    if len(text) > LONGEST:
        raise NotPython(None, f"it is longer than {LONGEST:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about invalid escapes would go to the terminal
            tree = ast.parse(text)
        return _Reader(code).read(ast.increment_lineno(tree, added) if added else tree)
    except SyntaxError as error:
        raise NotPython(error.lineno, error.msg) from None
    except (ValueError, RecursionError, MemoryError):
        raise NotPython(None, "nested too deeply, or with characters that are not valid in a program") from None


class _Reader:
    """Fills a Code from a syntax tree."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.aliases: dict[str, str] = {}

    def read(self, tree: ast.Module) -> Code:
        nodes = list(ast.walk(tree))
        for node in nodes:  # imports first: in a function, a name may be used above its import
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
        for node in nodes:
            self._collect(node)
        self.code.calls.sort(key=lambda call: call.node.lineno)
        return self.code

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            found = (node.module or "", tuple(alias.name for alias in node.names), node.level)
            self.code.imports.append(Import(*found, node.lineno))
        else:
            self.code.imports += [Import(alias.name, (), 0, node.lineno) for alias in node.names]
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        for alias in node.names:
            whole = module + alias.name
            own = isinstance(node, ast.ImportFrom) and node.level > 0
            self.code.packages.add("" if own else whole.partition(".")[0])
            self.aliases[alias.asname or (alias.name if module else alias.name.partition(".")[0])] = (
                whole if module or alias.asname else alias.name.partition(".")[0]
            )
            self.code.names.setdefault(whole, node.lineno)

    def _collect(self, node: ast.AST) -> None:
        code = self.code
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and (name := self._name(node)):
            code.names.setdefault(name, node.lineno)
            code.used.add(name)
        elif isinstance(node, ast.Call):
            name = self._name(node.func)
            code.calls.append(Call(name, node))
            self._option(name, node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            code.texts.setdefault(node.value, node.lineno)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.arg):
            code.changed.add(node.arg)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.comprehension)):
            code.changed |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.code.unpacked |= set(map(ast.unparse, target.elts))
        elif isinstance(target, ast.Subscript):
            self.code.changed.add(ast.unparse(target.value))
        elif isinstance(target, (ast.Name, ast.Attribute)):
            self.code.assigned.setdefault(ast.unparse(target), []).append(value)

    def _name(self, node: ast.expr) -> str:
        """Return the full name of a dotted expression; for a method of another expression, its last part."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])
        return parts[0] if parts else ""

    def _option(self, name: str, call: ast.Call) -> None:
        """Read a call of add_argument("--x", …) or of its counterparts in click and absl."""
        words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        method = name.rpartition(".")[2]
        if method.startswith("DEFINE_") and words:
            words = [f"--{words[0]}"]
        elif method not in ("add_argument", "option", "Option", "Argument", "argument"):
            return
        long = next((word for word in words if word.startswith("--")), words[0] if words else "")
        if not long:
            return
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        action, dest = given.get("action"), given.get("dest")
        switch = (isinstance(action, ast.Constant) and action.value in SWITCHES) or "is_flag" in given
        attribute = dest.value if isinstance(dest, ast.Constant) and isinstance(dest.value, str) else long.lstrip("-").replace("-", "_")
        self.code.options.append(ScriptOption(long if long.startswith("-") else "", attribute, call.lineno, switch))
