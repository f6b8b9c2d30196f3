"""Find the training loop in a plain torch script: model, optimizer, backward, step, accumulation, data. Pure, by its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dstui.adopt.script import is_optimizer

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TOGETHER = ("DistributedDataParallel", "DDP", "DataParallel")


class NoPlace(Exception):
    """There is no clear place for the lines. Holds the line that shows it (0: none) and the reason."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


@dataclass
class LoopParts:
    """The parts of a training loop."""

    tree: ast.Module
    parents: dict[int, ast.AST]
    model: str
    """The expression of the model passed to its optimizer."""
    optimizer: str
    optimizer_class: str
    optimizer_statement: ast.stmt
    last_import: ast.stmt
    main: ast.If | None
    """The block of `if __name__ == "__main__"`."""
    modules: set[str]
    backwards: list[ast.Call] = field(default_factory=list)
    steps: list[ast.stmt] = field(default_factory=list)
    zero_grads: list[ast.stmt] = field(default_factory=list)
    clips: list[ast.stmt] = field(default_factory=list)
    scaler_statements: list[ast.stmt] = field(default_factory=list)
    wrapped: list[ast.stmt] = field(default_factory=list)
    joined: ast.stmt | None = None
    loader: ast.Call | None = None
    guards: list[ast.If] = field(default_factory=list)

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function around a node."""
        return next((one for one in self.around(node) if isinstance(one, FUNCTIONS)), None)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, innermost first."""
        while (parent := self.parents.get(id(node))) is not None:
            yield parent
            node = parent

    def model_at(self, node: ast.AST) -> str:
        """Return the model's name at a node. Raises NoPlace."""
        return self._named(node, self.model)

    def _named(self, node: ast.AST, name: str) -> str:
        function, home = self.function_of(node), self.function_of(self.optimizer_statement)
        root = name.partition(".")[0]
        if function is None or function is home or root == "self":
            return name
        parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        for call in (one for one in ast.walk(self.tree) if isinstance(one, ast.Call) and name_in(one.func) == function.name):
            for place, value in enumerate(call.args):
                if name_in(value) == name and place < len(parameters):
                    return parameters[place]
            for keyword in call.keywords:
                if keyword.arg and name_in(keyword.value) == name:
                    return keyword.arg
        if home is None and root not in parameters:
            return name  # of the module
        raise NoPlace(getattr(node, "lineno", 0), f"{function.name}() is not given {name}")

    def divided(self, loss: ast.expr) -> bool:
        """Return whether an earlier statement divides a loss: loss = loss / n, loss /= n."""
        name = name_in(loss)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and name_in(node.target) == name:
                return True
            divided = isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Div)
            if name and divided and isinstance(node, ast.Assign) and any(name_in(target) == name for target in node.targets):
                return True
        return False

    def every(self, guard: ast.If) -> str:
        """Return the micro-batches per step as the script writes them, and the value if it is constant."""
        found = next(one for one in ast.walk(guard.test) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod))
        words = ast.unparse(found.right)
        values = [
            one.value
            for one in ast.walk(self.tree)
            if isinstance(one, ast.Assign) and any(name_in(target) == words for target in one.targets)
        ]
        return f"{words} ({ast.unparse(values[0])[:40]})" if values else words


def name_in(node: ast.AST | None) -> str:
    """Return a dotted name; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        inner = name_in(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def is_call_of(node: ast.AST | None, method: str) -> bool:
    """Return whether a node calls a method of this name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method


def find_parts(text: str) -> LoopParts:
    """Find the parts of a loop. Raises NoPlace if they are ambiguous."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoPlace(0, "it is not Python code that can be parsed here") from None
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    statement, call = _optimizer(tree)
    target = statement.targets[0]
    parts = LoopParts(
        tree,
        parents,
        _model(call, statement),
        name_in(target),
        name_in(call.func).rpartition(".")[2],
        statement,
        _last_import(tree),
        next((one for one in tree.body if isinstance(one, ast.If) and "__name__" in ast.unparse(one.test)), None),
        {alias.asname or alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names},
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_call_of(node, "backward"):
            parts.backwards.append(node)
        elif isinstance(node, ast.stmt):
            _sort(parts, node)
    if not parts.backwards:
        raise NoPlace(0, "its loop is in another file: add the lines there")
    if not parts.steps:
        raise NoPlace(parts.backwards[0].lineno, f"no call of {parts.optimizer}.step() belongs to this backward()")
    parts.loader = _loader(parts)
    parts.guards = [guard for one in parts.steps if (guard := accumulation_guard(parts, one)) is not None]
    return parts


def _optimizer(tree: ast.Module) -> tuple[ast.Assign, ast.Call]:
    aliases = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {alias.asname: alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names if alias.asname}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            root, dot, rest = name_in(node.value.func).partition(".")
            if is_optimizer(f"{aliases.get(root, root)}{dot}{rest}"):
                found.append((node, node.value))
    if len(found) != 1:
        which = "it builds no torch optimizer" if not found else f"it builds {len(found)} optimizers"
        raise NoPlace(found[1][0].lineno if found else 0, which)
    return found[0]


def _model(call: ast.Call, statement: ast.Assign) -> str:
    """Return the model whose parameters an optimizer gets, from its argument or that argument's assignment."""
    names = [
        name_in(one.func.value)
        for one in ast.walk(call)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ("parameters", "named_parameters")
    ]
    names = list(dict.fromkeys(filter(None, names)))
    if len(names) != 1:
        raise NoPlace(statement.lineno, "the model of this optimizer cannot be determined")
    return names[0]


def _last_import(tree: ast.Module) -> ast.stmt:
    last: ast.stmt | None = None
    for one in tree.body:
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            last = one
        elif last is not None and isinstance(one, (*FUNCTIONS, ast.ClassDef, ast.Assign, ast.If, ast.For, ast.With)):
            break
    if last is None:
        raise NoPlace(0, "it imports nothing")
    return last


def _sort(parts: LoopParts, node: ast.stmt) -> None:
    """Sort a statement into the part that it belongs to."""
    value = getattr(node, "value", None)
    if not isinstance(value, ast.Call) or not isinstance(node, (ast.Expr, ast.Assign)):
        return
    name = name_in(value.func)
    owner, _, method = name.rpartition(".")
    if method in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"):
        parts.clips.append(node)
    elif isinstance(node, ast.Assign):
        if method in TOGETHER or name in TOGETHER:
            parts.wrapped.append(node)
    elif method == "step" and _is_optimizer_of(parts, owner):
        if value.args or value.keywords:
            raise NoPlace(node.lineno, "step() with a closure: DeepSpeed's engine does not support one")
        parts.steps.append(node)
    elif method == "step" and value.args and _is_optimizer_of(parts, name_in(value.args[0])):
        parts.steps.append(node)  # of a GradScaler
    elif method == "zero_grad":
        parts.zero_grads.append(node)
    elif method == "unscale_" or (method == "update" and "scaler" in owner.lower()):
        parts.scaler_statements.append(node)
    elif method == "init_process_group":
        parts.joined = node


def _is_optimizer_of(parts: LoopParts, name: str) -> bool:
    last = name.rpartition(".")[2]
    return bool(name) and (name == parts.optimizer or last in ("optimizer", "optim", "opt", parts.optimizer.rpartition(".")[2]))


def accumulation_guard(parts: LoopParts, node: ast.stmt) -> ast.If | None:
    """Return the `if … % n …:` around a step within its loop."""
    for one in parts.around(node):
        if isinstance(one, (ast.For, ast.While, *FUNCTIONS)):
            return None
        if isinstance(one, ast.If) and any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in ast.walk(one.test)):
            return one
    return None


def _loader(parts: LoopParts) -> ast.Call | None:
    """Return the DataLoader of the loop. If the loop does not show it, return the only one, or the only one that shuffles."""
    made = {
        name_in(one.targets[0]): one.value
        for one in ast.walk(parts.tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and name_in(one.value.func).rpartition(".")[2] == "DataLoader"
    }
    for loop in (one for one in parts.around(parts.backwards[0]) if isinstance(one, ast.For)):
        for part in ast.walk(loop.iter):
            if isinstance(part, ast.expr) and (name := name_in(part)) in made:
                return made[name]
            if isinstance(part, ast.Call) and name_in(part.func).rpartition(".")[2] == "DataLoader":
                return part
    every = [one for one in ast.walk(parts.tree) if isinstance(one, ast.Call) and name_in(one.func).rpartition(".")[2] == "DataLoader"]
    if len(every) == 1:
        return every[0]
    shuffled = [one for one in every if any(keyword.arg == "shuffle" for keyword in one.keywords)]
    return shuffled[0] if len(shuffled) == 1 else None


def scheduler_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the lines where schedulers step."""
    for node in ast.walk(tree):
        if is_call_of(node, "step") and isinstance(node, ast.Call) and "sched" in ast.unparse(node.func).lower():
            yield node.lineno
