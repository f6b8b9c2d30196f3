"""Find the training loop in a plain torch script: model, optimizer, backward, step, accumulation, data. Pure, by its syntax tree.

`find_parts` tells the order: the optimizer and its model come first, since they say which calls of step() belong to the loop.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

from dstui.adopt.loop_loader import find_loader
from dstui.adopt.loop_optimizer import LoopOptimizer, find_optimizer, in_a_class
from dstui.adopt.script_tree import FUNCTIONS, LOOPS, Loop, NoPlace, ScriptTree, is_call_of, last_name_in, name_in, parameters_of
from dstui.base.dataclass import dataclass

MAX_CALLS = 100
"""Calls of backward() and of step() that are compared with each other."""
TOGETHER = ("DistributedDataParallel", "DDP", "DataParallel", "FullyShardedDataParallel", "FSDP")
"""Wrappers of a model that the engine replaces."""
CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
OWN_WAYS = {
    "fully_shard": "fully_shard() shards the model itself: remove its calls, since ZeRO does that",
    "ZeroRedundancyOptimizer": "ZeroRedundancyOptimizer shards the optimizer itself: build the torch optimizer, since ZeRO shards it",
    "mp.spawn": "mp.spawn() starts the ranks itself, which the launcher does: call its function once, with the rank of LOCAL_RANK",
    "multiprocessing.spawn": "torch's spawn() starts the ranks itself, which the launcher does: call its function once, with LOCAL_RANK",
}
"""Calls that do by themselves what DeepSpeed or its launcher does, with what to do instead."""


@dataclass(frozen=True)
class LoopParts:
    """The parts of a training loop."""

    tree: ScriptTree
    optimizer: LoopOptimizer
    model: str
    """The expression of the model that the loop uses: the one of the optimizer, or its wrapper."""
    wrapped: Sequence[ast.Call]
    """Calls of DDP and the like on a model."""
    last_import: ast.stmt
    main: ast.If | None
    """The block of `if __name__ == "__main__"`."""
    modules: set[str]
    """The names of imported modules."""
    backwards: Sequence[ast.Call]
    steps: Sequence[ast.stmt]
    zero_grads: Sequence[ast.stmt]
    clips: Sequence[ast.stmt]
    scaler_statements: Sequence[ast.stmt]
    joined: Sequence[ast.stmt]
    """Calls of init_process_group()."""
    loader: ast.Call | None
    """The DataLoader of the loop."""

    @property
    def guards(self) -> list[ast.If]:
        """The conditions of an accumulation around a step."""
        return [guard for one in self.steps if (guard := self.accumulation_guard(one)) is not None]

    def begins_in_main(self) -> bool:
        """Return whether the training starts in the block of `__name__ == "__main__"`, not in code of the module itself."""
        around = list(self.tree.around(self.optimizer.statement))
        owners = {one.name for one in around if isinstance(one, (*FUNCTIONS, ast.ClassDef))}
        if self.main is None or self.main in around or not owners:
            return self.main in around
        own = (one for one in self.tree.module.body if one is not self.main and not isinstance(one, (*FUNCTIONS, ast.ClassDef)))
        return not any(isinstance(part, ast.Call) and name_in(part.func) in owners for one in own for part in ast.walk(one))

    def ready(self) -> ast.stmt:
        """Return the statement after which the model is ready for an engine: the optimizer's, or one that then loads or compiles it."""
        last, parent = self.optimizer.statement, self.tree.parent(self.optimizer.statement)
        block = next((part for _, part in ast.iter_fields(parent) if isinstance(part, list) and last in part), [last]) if parent else [last]
        training = {function.name for call in self.backwards if (function := self.tree.function_of(call)) is not None}
        for one in block[block.index(last) + 1 :]:
            called = {last_name_in(part.func) for part in ast.walk(one) if isinstance(part, ast.Call)}
            if isinstance(one, (*LOOPS, *FUNCTIONS)) or called & {"backward", *training}:
                break
            assigned = any(isinstance(part, ast.Assign) and self.model in map(name_in, part.targets) for part in ast.walk(one))
            if assigned or any(is_call_of(part, "load_state_dict") for part in ast.walk(one)):
                last = one
        return last

    def model_at(self, node: ast.AST) -> str:
        """Return the model's name at a node. Raises NoPlace."""
        name, function, home = self.model, self.tree.function_of(node), self.tree.function_of(self.optimizer.statement)
        root = name.partition(".")[0]
        if function is None or function is home or root == "self":
            return name
        own = root in parameters_of(function)
        if not own and home is not None and home in self.tree.around(function):
            return name  # of the function around it
        for call, parameters in self.tree.calls_of(function):
            for value, parameter in zip(call.args, parameters, strict=False):
                if name_in(value) == name:
                    return parameter
            for keyword in call.keywords:
                if keyword.arg and name_in(keyword.value) == name:
                    return keyword.arg
        if home is None and not own:
            return name  # of the module
        raise NoPlace(getattr(node, "lineno", 0), f"{function.name}() is not given {name}")

    def divides(self, loss: ast.expr) -> bool:
        """Return whether a statement divides a loss: loss = loss / n, loss /= n."""
        name = name_in(loss)
        if any(isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Div) and name_in(one.target) == name for one in self.tree.nodes):
            return True
        return any(isinstance(one.value, ast.BinOp) and isinstance(one.value.op, ast.Div) for one in self.tree.assignments(name))

    def accumulation_guard(self, step: ast.stmt) -> ast.If | None:
        """Return the `if … % n …:` around a step within its loop."""
        for one in self.tree.around(step):
            if isinstance(one, (*LOOPS, *FUNCTIONS)):
                return None
            if isinstance(one, ast.If) and any(_remainders(one)):
                return one
        return None

    def loop_of_micro_batches(self, step: ast.stmt) -> Loop | None:
        """Return the inner loop that holds the backward() of a step after it: its passes are the accumulation."""
        outer = self.tree.loop_of(step)
        for call in self.backwards:
            loop = self.tree.loop_of(call)
            within = loop is not None and loop is not outer and outer is not None and outer in self.tree.around(loop)
            if within and self.tree.function_of(call) is self.tree.function_of(step):
                return loop
        return None

    def second_backward(self) -> ast.Call | None:
        """Return a backward() that follows another one before the same step; None if there is no such call."""
        tree = self.tree
        for place, second in enumerate(self.backwards):
            for first in self.backwards[:place]:
                together = tree.loop_of(first) is tree.loop_of(second) and tree.function_of(first) is tree.function_of(second)
                steps = any(first.lineno < one.lineno < second.lineno for one in self.steps)
                if together and not steps and not tree.are_alternatives(first, second):
                    return second
        return None


def find_parts(text: str) -> LoopParts:
    """Find the parts of a loop. Raises NoPlace if they are ambiguous."""
    tree = ScriptTree(text)
    _refuse_own_ways(tree)
    optimizer = in_a_class(tree, find_optimizer(tree))
    last_import = _last_import(tree.module)
    wrapped = [call for call in tree.calls() if last_name_in(call.func) in TOGETHER and wrapped_model(call) is not None]
    backwards = sorted((call for call in tree.calls() if is_call_of(call, "backward")), key=lambda call: (call.lineno, call.col_offset))
    roles = defaultdict[str, list[ast.stmt]](list)
    for node in tree.nodes:
        if isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Call):
            roles[_role(node, node.value, optimizer.name)].append(node)
    _refuse_unclear(backwards, roles["step"], optimizer.name)
    parts = LoopParts(
        tree,
        optimizer,
        model=_model_of_the_loop(tree, optimizer.model, wrapped),
        wrapped=wrapped,
        last_import=last_import,
        main=next((one for one in tree.module.body if isinstance(one, ast.If) and "__name__" in ast.unparse(one.test)), None),
        modules={alias.asname or alias.name.partition(".")[0] for one in tree.nodes if isinstance(one, ast.Import) for alias in one.names},
        backwards=backwards,
        steps=roles["step"],
        zero_grads=roles["zero_grad"],
        clips=roles["clip"],
        scaler_statements=roles["scaler"],
        joined=roles["join"],
        loader=find_loader(tree, backwards[0]),
    )
    if (second := parts.second_backward()) is not None:
        raise NoPlace(second.lineno, "a second backward() before one step(): under ZeRO only the last one counts, so add the losses first")
    return parts


def _refuse_own_ways(tree: ScriptTree) -> None:
    for call in tree.calls():
        called = f".{name_in(call.func)}"
        if (way := next((way for name, way in OWN_WAYS.items() if called.endswith(f".{name}")), None)) is not None:
            raise NoPlace(call.lineno, way)


def _refuse_unclear(backwards: Sequence[ast.Call], steps: Sequence[ast.stmt], optimizer: str) -> None:
    if not backwards:
        raise NoPlace(0, "its loop is in another file: add the lines there")
    if not steps:
        raise NoPlace(backwards[0].lineno, f"no call of {optimizer}.step() belongs to this backward()")
    if max(len(backwards), len(steps)) > MAX_CALLS:
        raise NoPlace(backwards[0].lineno, f"it has more than {MAX_CALLS} calls of backward() or step()")


def _last_import(module: ast.Module) -> ast.stmt:
    """Return the last import before the script's own code."""
    last: ast.stmt | None = None
    for one in module.body:
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            last = one
        elif last is not None and isinstance(one, (*FUNCTIONS, ast.ClassDef, ast.Assign, ast.If, ast.For, ast.With)):
            break
    if last is None:
        raise NoPlace(0, "it imports nothing")
    return last


def wrapped_model(call: ast.Call) -> ast.expr | None:
    """Return the model in DDP(model, …)."""
    return call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "module"), None)


def _model_of_the_loop(tree: ScriptTree, model: str, wrapped: Sequence[ast.Call]) -> str:
    """Return the name of the wrapper if it has one of its own: the loop uses it, and it becomes the engine."""
    for call in wrapped:
        statement, inner = tree.statement_of(call), wrapped_model(call)
        own = inner is not None and model in map(name_in, ast.walk(inner))
        if own and isinstance(statement, ast.Assign) and (name := name_in(statement.targets[0])):
            model = name
    return model


def _role(statement: ast.Expr | ast.Assign, call: ast.Call, optimizer: str) -> str:
    """Return what a call in a statement of its own does in the loop; "" for other calls. Raises NoPlace for a step with a closure."""
    owner, _, method = name_in(call.func).rpartition(".")
    if method in CLIPPING:
        return "clip"
    if isinstance(statement, ast.Assign):
        return ""
    if method == "step":
        if _is_optimizer(owner, optimizer):
            if call.args or call.keywords:
                raise NoPlace(statement.lineno, "step() with a closure: DeepSpeed's engine does not support one")
            return "step"
        return "step" if call.args and _is_optimizer(name_in(call.args[0]), optimizer) else ""  # of a GradScaler
    if method == "unscale_" or (method == "update" and "scaler" in owner.lower()):
        return "scaler"
    return {"zero_grad": "zero_grad", "init_process_group": "join"}.get(method, "")


def _is_optimizer(name: str, optimizer: str) -> bool:
    return bool(name) and (name == optimizer or name.rpartition(".")[2] in ("optimizer", "optim", "opt", optimizer.rpartition(".")[2]))


def _remainders(guard: ast.If) -> Iterator[ast.BinOp]:
    """Yield the `… % n` in a condition."""
    return (one for one in ast.walk(guard.test) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod))


def period(guard: ast.If) -> ast.expr:
    """Return the number of micro-batches per step in the condition of an accumulation."""
    return next(_remainders(guard)).right
