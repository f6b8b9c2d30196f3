"""Find the training loop in a plain torch script: model, optimizer, backward, step, accumulation, data. Pure, by its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field
from typing import TypeGuard

from dstui.adopt.loop_optimizer import FUNCTIONS, NoPlace, find_optimizer, in_a_class, is_call_of, name_in
from dstui.base.dataclass import dataclass

MOST_CALLS = 100
"""Calls of backward() and of step() that are compared with each other."""
MOST_VALUE = 1e9
"""No batch size, accumulation or bound is larger."""
TOGETHER = ("DistributedDataParallel", "DDP", "DataParallel", "FullyShardedDataParallel", "FSDP")
"""Wrappers of a model that the engine replaces."""
OWN_WAYS = {
    "fully_shard": "fully_shard() shards the model itself: remove its calls, since ZeRO does that",
    "ZeroRedundancyOptimizer": "ZeroRedundancyOptimizer shards the optimizer itself: build the torch optimizer, since ZeRO shards it",
    "mp.spawn": "mp.spawn() starts the ranks itself, which the launcher does: call its function once, with the rank of LOCAL_RANK",
    "multiprocessing.spawn": "torch's spawn() starts the ranks itself, which the launcher does: call its function once, with LOCAL_RANK",
}
"""Calls that do by themselves what DeepSpeed or its launcher does, with what to do instead."""


@dataclass
class LoopParts:
    """The parts of a training loop."""

    tree: ast.Module
    parents: dict[int, ast.AST]
    model: str
    """The expression of the model passed to its optimizer."""
    optimizer: str
    optimizer_class: str
    """Its class; "" if a function or method builds it."""
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
    wrapped: list[ast.Call] = field(default_factory=list)
    """Calls of DDP and the like on a model."""
    joined: list[ast.stmt] = field(default_factory=list)
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

    def begins_in_main(self) -> bool:
        """Return whether the training starts in the block of `__name__ == "__main__"`, not in code of the module itself."""
        around = list(self.around(self.optimizer_statement))
        owners = {one.name for one in around if isinstance(one, (*FUNCTIONS, ast.ClassDef))}
        if self.main is None or self.main in around or not owners:
            return self.main in around
        own = (one for one in self.tree.body if one is not self.main and not isinstance(one, (*FUNCTIONS, ast.ClassDef)))
        return not any(isinstance(part, ast.Call) and name_in(part.func) in owners for one in own for part in ast.walk(one))

    def model_at(self, node: ast.AST) -> str:
        """Return the model's name at a node. Raises NoPlace."""
        return self._named(node, self.model)

    def _named(self, node: ast.AST, name: str) -> str:
        function, home = self.function_of(node), self.function_of(self.optimizer_statement)
        root = name.partition(".")[0]
        if function is None or function is home or root == "self":
            return name
        parameters = _parameters(function)
        if root not in parameters and home is not None and home in self.around(function):
            return name  # of the function around it
        for call, given in self.calls_of(function):
            for place, value in enumerate(call.args[: len(given)]):
                if name_in(value) == name:
                    return given[place]
            for keyword in call.keywords:
                if keyword.arg and name_in(keyword.value) == name:
                    return keyword.arg
        if home is None and root not in parameters:
            return name  # of the module
        raise NoPlace(getattr(node, "lineno", 0), f"{function.name}() is not given {name}")

    def calls_of(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.Call, list[str]]]:
        """Yield the calls of a function, of a method by its name, or of a class, with the parameters for their positional arguments."""
        owner, parameters = self.parents.get(id(function)), _parameters(function)
        method = isinstance(owner, ast.ClassDef)
        called = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        for one in ast.walk(self.tree):
            if isinstance(one, ast.Call) and (name_in(one.func) == called or (method and is_call_of(one, called))):
                yield one, parameters[method:]

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

    def period(self, guard: ast.If) -> ast.expr:
        """Return the number of micro-batches per step in the condition of an accumulation."""
        return next(one.right for one in ast.walk(guard.test) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod))

    def as_written(self, number: ast.expr) -> str:
        """Return a number as the script writes it, with its value if that is known."""
        words, value = ast.unparse(number)[:40], self.constant(number)
        return words if value is None or words == str(value) else f"{words} ({value})"

    def constant(self, number: ast.expr) -> int | float | None:
        """Return the value of a number, of a product of numbers, or of a name for one; None if it is unknown.

        A name counts if it is assigned once, or is an option with a default.
        """
        value = self._product(number)
        return value if value is not None and 0 < value < MOST_VALUE else None

    def _product(self, number: ast.expr, names: frozenset[str] = frozenset()) -> int | float | None:
        """Return the value of an expression, for which these names were looked up already."""
        if isinstance(number, ast.Constant):
            value = number.value
            return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_VALUE else None
        if isinstance(number, ast.BinOp) and isinstance(number.op, (ast.Mult, ast.FloorDiv)):
            left, right = self._product(number.left, names), self._product(number.right, names)
            if left is None or not right or abs(left) >= MOST_VALUE:
                return None
            return left * right if isinstance(number.op, ast.Mult) else left // right
        name = name_in(number)
        changed = (one for one in ast.walk(self.tree) if isinstance(one, ast.AugAssign))
        if not name or name in names or any(name_in(one.target) == name for one in changed):
            return None
        given = [one.value for one in ast.walk(self.tree) if isinstance(one, ast.Assign) and any(name_in(to) == name for to in one.targets)]
        if not given and "." in name:
            given = list(_defaults(self.tree, name.rpartition(".")[2]))
        return self._product(given[0], names | {name}) if len(given) == 1 else None

    def entry(self, mapping: ast.expr | None, key: str) -> ast.expr | None:
        """Return the value of a key in the dictionary that a name is assigned; None if it is not written there."""
        name = name_in(mapping)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and name and name in map(name_in, node.targets):
                keys = [one.value if isinstance(one, ast.Constant) else None for one in node.value.keys]
                return node.value.values[keys.index(key)] if key in keys else None
        return None

    def ready(self) -> ast.stmt:
        """Return the statement after which the model is ready for an engine: the optimizer's, or one that then loads or compiles it."""
        last, parent = self.optimizer_statement, self.parents.get(id(self.optimizer_statement))
        block = next((part for _, part in ast.iter_fields(parent) if isinstance(part, list) and last in part), [last]) if parent else [last]
        training = {function.name for call in self.backwards if (function := self.function_of(call)) is not None}
        for one in block[block.index(last) + 1 :]:
            called = {name_in(part.func).rpartition(".")[2] for part in ast.walk(one) if isinstance(part, ast.Call)}
            if isinstance(one, (ast.For, ast.While, *FUNCTIONS)) or called & {"backward", *training}:
                break
            assigned = any(isinstance(part, ast.Assign) and self.model in map(name_in, part.targets) for part in ast.walk(one))
            if assigned or any(is_call_of(part, "load_state_dict") for part in ast.walk(one)):
                last = one
        return last

    def loop_of_micro_batches(self, step: ast.stmt) -> ast.For | ast.While | None:
        """Return the inner loop that holds the backward() of a step after it: its passes are the accumulation."""
        outer = self._loop(step)
        for call in self.backwards:
            loop = self._loop(call)
            if (
                loop is not None
                and loop is not outer
                and outer is not None
                and outer in self.around(loop)
                and self.function_of(call) is self.function_of(step)
            ):
                return loop
        return None

    def _loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """Return the innermost loop around a node in its function."""
        for one in self.around(node):
            if isinstance(one, FUNCTIONS):
                return None
            if isinstance(one, (ast.For, ast.While)):
                return one
        return None

    def second_backward(self) -> ast.Call | None:
        """Return a backward() that follows another one before the same step; None if there is no such call."""
        for place, second in enumerate(self.backwards):
            for first in self.backwards[:place]:
                if self._loop(first) is self._loop(second) and self.function_of(first) is self.function_of(second):
                    steps = [one.lineno for one in self.steps if first.lineno < one.lineno < second.lineno]
                    if not steps and not self._alternatives(first, second):
                        return second
        return None

    def _alternatives(self, first: ast.AST, second: ast.AST) -> bool:
        """Return whether two nodes are in different branches of one `if`."""
        others = {id(one) for one in self.around(second)}
        branch = first
        for one in self.around(first):
            if id(one) in others:
                return isinstance(one, ast.If) and (branch in one.body) != any(part in one.body for part in (second, *self.around(second)))
            branch = one
        return False


def wrapped_model(call: ast.Call) -> ast.expr | None:
    """Return the model in DDP(model, …)."""
    return call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "module"), None)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)]


def _defaults(tree: ast.Module, option: str) -> Iterator[ast.expr]:
    """Yield the defaults that argument parsers give an option."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not is_call_of(call, "add_argument"):
            continue
        words = [
            one.value.lstrip("-").replace("-", "_") for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        if option in words:
            yield from (keyword.value for keyword in call.keywords if keyword.arg == "default")


def find_parts(text: str) -> LoopParts:
    """Find the parts of a loop. Raises NoPlace if they are ambiguous."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoPlace(0, "it is not Python code that can be parsed here") from None
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for call in (one for one in ast.walk(tree) if isinstance(one, ast.Call)):
        called = name_in(call.func)
        if (way := next((OWN_WAYS[name] for name in OWN_WAYS if f".{called}".endswith(f".{name}")), None)) is not None:
            raise NoPlace(call.lineno, way)
    optimizer = in_a_class(tree, parents, find_optimizer(tree, parents))
    parts = LoopParts(
        tree,
        parents,
        optimizer.model,
        optimizer.name,
        optimizer.kind,
        optimizer.statement,
        _last_import(tree),
        next((one for one in tree.body if isinstance(one, ast.If) and "__name__" in ast.unparse(one.test)), None),
        {alias.asname or alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names},
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_call_of(node, "backward"):
            parts.backwards.append(node)
        elif isinstance(node, ast.Call) and name_in(node.func).rpartition(".")[2] in TOGETHER and wrapped_model(node) is not None:
            _wrap(parts, node)
        elif isinstance(node, ast.stmt):
            _sort(parts, node)
    if not parts.backwards:
        raise NoPlace(0, "its loop is in another file: add the lines there")
    if not parts.steps:
        raise NoPlace(parts.backwards[0].lineno, f"no call of {parts.optimizer}.step() belongs to this backward()")
    if max(len(parts.backwards), len(parts.steps)) > MOST_CALLS:
        raise NoPlace(parts.backwards[0].lineno, f"it has more than {MOST_CALLS} calls of backward() or step()")
    parts.backwards.sort(key=lambda call: (call.lineno, call.col_offset))
    if (second := parts.second_backward()) is not None:
        raise NoPlace(second.lineno, "a second backward() before one step(): under ZeRO only the last one counts, so add the losses first")
    parts.loader = _loader(parts)
    parts.guards = [guard for one in parts.steps if (guard := accumulation_guard(parts, one)) is not None]
    return parts


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


def _wrap(parts: LoopParts, call: ast.Call) -> None:
    """Note a call that wraps a model. If the result has a name of its own, the loop uses that one: it becomes the engine."""
    parts.wrapped.append(call)
    statement, model = next(one for one in parts.around(call) if isinstance(one, ast.stmt)), wrapped_model(call)
    own = model is not None and parts.model in {name_in(one) for one in ast.walk(model)}
    if own and isinstance(statement, ast.Assign) and (name := name_in(statement.targets[0])):
        parts.model = name


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
        return
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
        parts.joined.append(node)


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
    for loop in (one for one in parts.around(parts.backwards[0]) if isinstance(one, ast.For)):
        if (found := _loader_behind(parts, loop.iter)) is not None:
            return found
    every = [one for one in ast.walk(parts.tree) if _makes_loader(one)]
    if len(every) == 1:
        return every[0]
    shuffled = [one for one in every if any(keyword.arg == "shuffle" for keyword in one.keywords)]
    return shuffled[0] if len(shuffled) == 1 else None


def _makes_loader(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and name_in(node.func).rpartition(".")[2] == "DataLoader"


def _loader_behind(parts: LoopParts, value: ast.expr) -> ast.Call | None:
    """Return the DataLoader behind the value that a loop iterates over, through assignments, arguments and functions of the script."""
    functions = {one.name: one for one in ast.walk(parts.tree) if isinstance(one, FUNCTIONS)}
    values, seen = [value], set[tuple[str, int]]()
    for each in values:  # the list grows meanwhile
        for part in ast.walk(each):
            if _makes_loader(part):
                return part
            if isinstance(part, ast.Call) and (function := functions.get(name_in(part.func))) is not None:
                made = [one for one in ast.walk(function) if _makes_loader(one)]
                values += made if len(made) == 1 else []
            name, place = name_in(part), id(parts.function_of(part))
            if name and (name, place) not in seen:
                seen.add((name, place))
                values += _values_of(parts, name, part)
    return None


def _values_of(parts: LoopParts, name: str, at: ast.AST) -> Iterator[ast.expr]:
    """Yield the values that a name may have: from assignments, and from the calls that pass it as an argument."""
    function = parts.function_of(at)
    if function is not None and name in _parameters(function):
        for call, given in parts.calls_of(function):
            yield from (value for value, parameter in zip(call.args, given, strict=False) if parameter == name)
            yield from (keyword.value for keyword in call.keywords if keyword.arg == name)
        return
    for node in ast.walk(parts.tree):
        if isinstance(node, ast.Assign) and any(name_in(target) == name for target in node.targets):
            yield node.value


def scheduler_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the lines where schedulers step."""
    for node in ast.walk(tree):
        if is_call_of(node, "step") and isinstance(node, ast.Call) and "sched" in ast.unparse(node.func).lower():
            yield node.lineno
