"""Find the launch that a Python program starts by subprocess or os.system, as shell text. Pure: the program is parsed, never run."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from dstui.adopt.pycode import Call, Code, NotPython, read_code
from dstui.adopt.shell.recognise import recognise
from dstui.base.dataclass import dataclass

STARTS = tuple(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen"))
SHELL_STARTS = ("os.system", "os.popen")
OF_TASKS = ("run", "run_always", "sudo", "local")
"""Methods of nox, invoke and fabric that start a command, as one text or as words."""
CHANGES = ("append", "extend", "insert", "remove", "pop", "clear")
"""Methods after which a list is no longer its literal."""
LAUNCHERS = ("deepspeed", "torchrun", "accelerate")
OF_METAFLOW = {
    "metaflow.current.deepspeed.run": ("deepspeed", "num_nodes", "num_gpus"),
    "metaflow.current.torch.run": ("torchrun", "nnodes", "nproc_per_node"),
}
"""Method of a metaflow step -> its launcher, and the options for `num_parallel=` and `gpu=` of the step."""
PLAIN = re.compile(r"[\w./:,@=+-]*")
"""A default that means the same inside and outside of quotes."""
STARTED = re.compile(r"(?:deepspeed|torchrun|accelerate launch|torch\.distributed\.(?:run|launch))[ \n\\]")
FIRST = re.compile(
    r"""[\[(]*f?['"]?(?:(?:srun|nice|nohup|env|numactl|timeout|sudo)\b.*['"\s])?(?:(?:deepspeed|torchrun|accelerate)['"\s]"""
    r"""|(?:python[\d.]*|\{?sys\.executable\}?).{1,9}-m['",\s]+torch\.distributed\.(?:run|launch)\b)""",
    re.DOTALL,
)
"""The source of a command whose first word, or the first after a program that starts another, is a launcher."""
LAUNCH_TEXT = re.compile(r"\s*(?:deepspeed|torchrun|accelerate launch)\s+\S")
PRINTS = ("print", "add_argument", "ArgumentParser", "info", "warning", "error", "debug", "write", "Exception", "exit", "append")
"""Functions whose texts are read by people."""
MAX_PARTS = 5_000
"""Parts of expressions that are followed: a program can double a list at each line."""


class Unclear(Exception):
    """Only a run shows the words of a command."""


@dataclass(frozen=True, slots=True)
class StartedLaunch:
    """The launches of a program."""

    text: str
    """Shell text with each launch on its line of the program; empty if there is none."""
    unclear: int = 0
    """The line of a launch whose words only a run shows; 0 if there is none."""
    notes: tuple[str, ...] = ()
    """Sentences on what stands around a launch and is not carried over."""


def started_launch(text: str) -> StartedLaunch:
    """Return the launches of a program's text that start a launcher."""
    if not any(name in text for name in (*LAUNCHERS, "torch.distributed", "metaflow")):
        return StartedLaunch("")
    if not ("subprocess" in text or "os." in text or ".run(" in text or STARTED.search(text)):
        return StartedLaunch("")
    try:
        code = read_code(text)
    except NotPython:
        return StartedLaunch("")
    words, found, unclear, notes = _Words(code), dict[int, str](), 0, list[str]()
    for call in code.calls:
        of_metaflow = call.name in OF_METAFLOW
        of_task = not call.name.startswith("subprocess.") and call.name.rpartition(".")[2] in OF_TASKS
        if not of_metaflow and (not (of_task or call.name in (*STARTS, *SHELL_STARTS)) or not call.node.args):
            continue
        try:
            command = words.of_metaflow(call) if of_metaflow else words.of_task(call) if of_task else words.command(call)
        except (Unclear, RecursionError):
            unclear = unclear or (call.node.lineno if of_metaflow or words.begins_with_launcher(call.node.args[0]) else 0)
            continue
        if _starts_launcher(command):
            found.setdefault(call.node.lineno, command)
            if not of_task and any(keyword.arg == "env" for keyword in call.node.keywords):
                notes.append(f"line {call.node.lineno}: env= of the call is not carried over: write its variables under cluster.env")
        elif not of_metaflow and words.begins_with_launcher(call.node.args[0]):
            unclear = unclear or call.node.lineno  # a variable that several assignments or a change decide
    if found:
        notes += _conditions(text, found)
    else:
        unclear = unclear or _written_elsewhere(text)
    lines = [found.get(number, "") for number in range(1, max(found, default=0) + 1)]
    return StartedLaunch("".join(f"{line}\n" for line in lines), unclear, tuple(notes))


def _conditions(text: str, found: Mapping[int, str]) -> Iterator[str]:
    """Yield a note for each launch under a condition or in a loop: the innermost one."""
    lines, around = sorted(found), dict[int, ast.If | ast.While | ast.For]()
    for node in _nodes(text):  # outer nodes come first
        if isinstance(node, ast.If | ast.While | ast.For) and not _is_main(node):
            last = (node.orelse or node.body)[-1].end_lineno or 0
            inside = lines[bisect_left(lines, node.body[0].lineno) : bisect_right(lines, last)]
            around.update(dict.fromkeys(inside, node))
    for line, node in sorted(around.items()):
        kind = "condition" if isinstance(node, ast.If) else "loop"
        yield f"the launch in line {line} is under the {kind} in line {node.lineno}, which is not followed"


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))


def _nodes(text: str) -> Iterator[ast.AST]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of texts that are not ours
        yield from ast.walk(ast.parse(text))


def _written_elsewhere(text: str) -> int:
    """Return the line of a text that begins with a launcher and is assigned, or given to a call that does not print; 0 for none."""
    for node in _nodes(text):
        values = [node.value] if isinstance(node, ast.Assign) else node.args if isinstance(node, ast.Call) and not _prints(node) else []
        for value in values:
            first = value.values[0] if isinstance(value, ast.JoinedStr) and value.values else value
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and LAUNCH_TEXT.match(first.value):
                return value.lineno
    return 0


def _prints(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in PRINTS


def _starts_launcher(command: str) -> bool:
    try:
        started = [recognise(shlex.split(part)) for part in re.split(r"&&|[;|)]", command.lstrip("("))]
    except ValueError:
        return False
    return any(one is not None and one.launcher in LAUNCHERS for one in started)


class _Words:
    """Writes expressions of one program as words of the shell."""

    def __init__(self, code: Code) -> None:
        self.code, self.parts = code, 0
        self.changed = code.changed | {ast.unparse(found.value) for call in code.calls if (found := _changed_by(call.node.func))}

    def command(self, call: Call) -> str:
        """Return the command of a call as a line of the shell. Raises Unclear."""
        given, keywords = call.node.args[0], {keyword.arg: keyword.value for keyword in call.node.keywords}
        shell = keywords.get("shell")
        is_text = call.name in SHELL_STARTS or (isinstance(shell, ast.Constant) and shell.value is True)
        command = self.text(given, quoted=False) if is_text else " ".join(self.words(given))
        command = "; ".join(line.strip() for line in command.replace("\\\n", " ").split("\n") if line.strip())
        folder = keywords.get("cwd")
        return command if folder is None else f"(cd {self.text(folder)} && {command})"

    def of_task(self, call: Call) -> str:
        """Return the command that a session of nox, or a context of invoke or fabric, starts. Raises Unclear."""
        first, *more = call.node.args
        if not more and not isinstance(first, ast.Constant | ast.JoinedStr):
            raise Unclear
        if more or (isinstance(first, ast.Constant) and first.value in LAUNCHERS):
            env = call.value("env")
            before = [f"{name}={value}" for name, value in self.pairs(env)] if env is not None else []
            return " ".join(
                [
                    *before,
                    *(
                        word
                        for one in call.node.args
                        for word in (self.words(one.value) if isinstance(one, ast.Starred) else (self.text(one),))
                    ),
                ]
            )
        return self.text(first, quoted=False).replace("\n", " ")

    def of_metaflow(self, call: Call) -> str:
        """Return the command that a step of metaflow starts on its own hosts. Raises Unclear."""
        launcher, nodes, ranks = OF_METAFLOW[call.name]
        entry = call.value("entrypoint", place=1)
        if entry is None:
            raise Unclear
        found = [launcher, *self.options(call.value("deepspeed_args", "torch_args"))]
        for option, keyword in ((nodes, "num_parallel"), (ranks, "gpu")):
            given = next((value for one in self.code.calls if (value := one.value(keyword)) is not None), None)
            if given is not None and not any(word.startswith(f"--{option}") for word in found):
                found += [f"--{option}", self.text(given)]
        variables = next((value for one in self.code.calls if one.name == "metaflow.environment" and (value := one.value("vars"))), None)
        before = [f"{name}={value}" for name, value in self.pairs(variables)] if variables is not None else []
        return " ".join([*before, *found, self.text(entry), *self.options(call.value("entrypoint_args", place=2))])

    def options(self, node: ast.expr | None) -> list[str]:
        """Return words, of a list or of a mapping of options to values. Raises Unclear."""
        if isinstance(node, ast.Dict):
            return [word for name, value in self.pairs(node) for word in (f"--{name.lstrip('-')}", value) if word != "''"]
        return [] if node is None else list(self.words(node))

    def pairs(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        """Yield the names and values of a mapping. Raises Unclear."""
        if not isinstance(node, ast.Dict):
            raise Unclear
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise Unclear
            yield self.text(key, quoted=False), self.text(value)

    def words(self, node: ast.expr) -> Iterator[str]:
        """Yield the words of a list. Raises Unclear."""
        self.step()
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                for item in items:
                    yield from self.words(item.value) if isinstance(item, ast.Starred) else (self.text(item),)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                yield from self.words(left)
                yield from self.words(right)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="shlex"), attr="split"), args=[one]):
                yield self.text(one, quoted=False)
            case ast.Call(func=ast.Attribute(value=one, attr="split"), args=[]):
                yield self.text(one, quoted=False)
            case ast.Name(id=name):
                yield from self.words(self.value_of(name))
            case _:
                raise Unclear

    def text(self, node: ast.expr, *, quoted: bool = True) -> str:
        """Return a text as a word, or unquoted as part of a line. Raises Unclear."""
        self.step()
        match node:
            case ast.Constant(value=str() | int() | float() as value):
                return shlex.quote(str(value)) if quoted else str(value)
            case ast.JoinedStr(values=parts):
                return "".join(self.text(part, quoted=quoted) for part in parts) or "''"
            case ast.FormattedValue(value=one, format_spec=None):
                return self.text(one, quoted=quoted)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return self.text(left, quoted=quoted) + self.text(right, quoted=quoted)
            case ast.Call(func=ast.Name(id="str"), args=[one]):
                return self.text(one, quoted=quoted)
            case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
                return "python"
            case ast.Name(id=name) if self.is_constant(name):
                return self.text(self.value_of(name), quoted=quoted)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self.variable(name, "", quoted=quoted)
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                return self.variable(name, "", quoted=quoted)
            case ast.Call(
                func=ast.Attribute(attr="getenv") | ast.Attribute(value=ast.Attribute(attr="environ"), attr="get"),
                args=[ast.Constant(value=str(name)), *default],
            ):
                return self.variable(name, self.text(default[0], quoted=False) if default else "", quoted=quoted)
            case _:
                raise Unclear

    def variable(self, name: str, default: str, *, quoted: bool) -> str:
        """Return a variable of the shell: a hole of the Plan, unless it has a default."""
        if not name.isidentifier() or not name.isascii() or not PLAIN.fullmatch(default):
            raise Unclear
        found = f"${{{name}:-{default}}}" if default else f"${{{name}}}"
        return f'"{found}"' if quoted else found

    def begins_with_launcher(self, node: ast.expr) -> bool:
        """Return whether a command, as one of its assignments has it, begins with a launcher."""
        given = self.code.assigned.get(node.id, ()) if isinstance(node, ast.Name) else (node,)
        return any(FIRST.match(ast.unparse(one)) for one in given)

    def is_constant(self, name: str) -> bool:
        """Return whether a variable is assigned once and never changed."""
        return len(self.code.assigned.get(name, ())) == 1 and name not in self.changed and name not in self.code.unpacked

    def value_of(self, name: str) -> ast.expr:
        """Return the only value of a variable. Raises Unclear."""
        if not self.is_constant(name):
            raise Unclear
        return self.code.assigned[name][0]

    def step(self) -> None:
        """Count a part. Raises Unclear after too many."""
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise Unclear


def _changed_by(called: ast.expr) -> ast.Attribute | None:
    """Return the callee if it is a method that changes a list."""
    return called if isinstance(called, ast.Attribute) and called.attr in CHANGES and isinstance(called.value, ast.Name) else None
