"""Find the optimizer of a plain training loop and the model whose parameters it gets. Pure."""

from __future__ import annotations

import ast

from dstui.adopt.no_deepspeed import is_optimizer
from dstui.adopt.script_tree import NoPlace, ScriptTree, is_call_of, last_name_in, name_in, parameters_of
from dstui.base.dataclass import dataclass

TESTED = ("Adam", "AdamW", "FusedAdam", "DeepSpeedCPUAdam", "Lamb", "Adagrad")
"""Optimizers that DeepSpeed takes with ZeRO without a further key."""
NOT_ONE_MODEL = "the model of this optimizer cannot be determined"


@dataclass(frozen=True)
class LoopOptimizer:
    """An optimizer of a loop: the statement after which it exists, its name, its model, and its class ("" if unknown)."""

    statement: ast.stmt
    name: str
    model: str
    kind: str


def find_optimizer(tree: ScriptTree) -> LoopOptimizer:
    """Return the one optimizer of a script. Raises NoPlace."""
    aliases = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {alias.asname: alias.name for node in tree.nodes if isinstance(node, ast.Import) for alias in node.names if alias.asname}

    def builds(call: ast.expr) -> bool:
        root, dot, rest = name_in(getattr(call, "func", None)).partition(".")
        return isinstance(call, ast.Call) and is_optimizer(f"{aliases.get(root, root)}{dot}{rest}")

    assigned = sorted((node for node in tree.nodes if isinstance(node, ast.Assign)), key=lambda node: node.lineno)
    found = [(node, calls) for node in assigned if all(map(builds, calls := _either(node.value)))]
    if not found:
        return _by_its_use(tree, assigned)
    names = {name_in(node.targets[0]) for node, _ in found}
    statement = found[0][0] if len(found) == 1 else _choice([node for node, _ in found], tree)
    if len(names) != 1 or statement is None:
        raise NoPlace(found[1][0].lineno, f"it builds {len(found)} optimizers")
    models = {_model(tree, call, node) for node, calls in found for call in calls}
    if len(models) != 1:
        raise NoPlace(found[0][0].lineno, NOT_ONE_MODEL)
    kinds = [last_name_in(call.func) for _, calls in found for call in calls if isinstance(call, ast.Call)]
    return LoopOptimizer(statement, names.pop(), models.pop(), next((kind for kind in kinds if kind not in TESTED), kinds[0]))


def in_a_class(tree: ScriptTree, optimizer: LoopOptimizer) -> LoopOptimizer:
    """Return the optimizer by the attribute that it has in the class whose methods train: `Trainer(model, optimizer)`.

    The class gets the model and the optimizer when it is created, and its `__init__` keeps both.
    """
    backward = next((one for one in tree.calls() if is_call_of(one, "backward")), None)
    around = tree.around(backward) if backward is not None else ()
    kind = next((one for one in around if isinstance(one, ast.ClassDef)), None)
    start = next((one for one in kind.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None) if kind else None
    if kind is None or start is None or optimizer.name.startswith("self."):
        return optimizer
    parameters = parameters_of(start)[1:]
    for call in (one for one in tree.calls() if name_in(one.func) == kind.name):
        given = {name_in(value): name for value, name in zip(call.args, parameters, strict=False)}
        given |= {name_in(one.value): one.arg for one in call.keywords if one.arg}
        model, name = (_attribute(start, given.get(one)) for one in (optimizer.model, optimizer.name))
        if model and name:
            return LoopOptimizer(start.body[-1], name, model, optimizer.kind)
    return optimizer


def _attribute(function: ast.FunctionDef, parameter: str | None) -> str:
    """Return the attribute in which a function keeps a parameter: `self.model = model.to(0)`; "" if there is none."""
    for one in ast.walk(function):
        if isinstance(one, ast.Assign) and (name := name_in(one.targets[0])).startswith("self."):
            value: ast.AST | None = one.value
            while isinstance(value, ast.Call):
                value = (
                    value.func.value
                    if isinstance(value.func, ast.Attribute) and not value.args[1:] and _moves(value)
                    else next(iter(value.args), None)
                )
            if parameter and name_in(value) == parameter:
                return name
    return ""


def _moves(call: ast.Call) -> bool:
    """Return whether a method returns the same model: model.to(0)."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda", "train", "half", "bfloat16", "float")


def _either(value: ast.expr) -> list[ast.expr]:
    """Return the values that an expression may have: both of a conditional expression."""
    return [*_either(value.body), *_either(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _choice(statements: list[ast.Assign], tree: ScriptTree) -> ast.If | None:
    """Return the `if` of which each branch holds at most one of these statements; None if there is none."""
    chains = []
    for one in statements:
        inner: ast.AST = one
        while isinstance(parent := tree.parent(inner), ast.If):
            inner = parent
        chains.append(inner)
    first = chains[0]
    branches = [tree.parent(one) for one in statements]
    if isinstance(first, ast.If) and all(one is first for one in chains):
        places = {(id(parent), one in getattr(parent, "orelse", ())) for one, parent in zip(statements, branches, strict=True)}
        return first if len(places) == len(statements) else None
    return None


def _names(target: ast.expr) -> list[str]:
    """Return the names of `model, optimizer = …`."""
    return [name_in(one) for one in target.elts] if isinstance(target, ast.Tuple) else []


def _by_its_use(tree: ScriptTree, assigned: list[ast.Assign]) -> LoopOptimizer:
    """Return the optimizer that a function or method builds: the name whose step() and zero_grad() are called."""
    calls = [name_in(one.func) for one in tree.calls()]
    used = {name.rpartition(".")[0] for name in calls if name.endswith(".step")} & {
        name.rpartition(".")[0] for name in calls if name.endswith(".zero_grad")
    }
    scaled = {name_in(one.args[0]) for one in tree.calls() if is_call_of(one, "step") and one.args}
    used |= scaled & {name.rpartition(".")[0] for name in calls if name.endswith(".zero_grad")}
    found = [(node, node.value) for node in assigned if name_in(node.targets[0]) in used and isinstance(node.value, ast.Call)]
    together = [(node, names) for node in assigned if len(used & set(names := _names(node.targets[0]))) == 1]
    if not found and len(together) == 1:
        statement, names = together[0]
        models = [name for name in names if name in calls]
        if len(models) == 1:
            return LoopOptimizer(statement, (used & set(names)).pop(), models[0], "")
    if len(found) != 1:
        raise NoPlace(0, "it builds no torch optimizer")
    statement, call = found[0]
    given = [name_in(call.func).rpartition(".")[0], *map(name_in, call.args), *(name_in(keyword.value) for keyword in call.keywords)]
    models = [name for name in dict.fromkeys(filter(None, given)) if name in calls or f"{name}.parameters" in calls]
    if len(models) != 1:
        raise NoPlace(statement.lineno, NOT_ONE_MODEL)
    return LoopOptimizer(statement, name_in(statement.targets[0]), models[0], "")


def _model(tree: ScriptTree, call: ast.expr, statement: ast.Assign) -> str:
    """Return the model whose parameters an optimizer gets, from its arguments or the assignments of the names in them."""
    names: list[str] = []
    looked_at, seen = [call], set[str]()
    while looked_at and not names:
        walked = [one for part in looked_at for one in ast.walk(part)]
        names = [
            name_in(one.func.value)
            for one in walked
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ("parameters", "named_parameters")
        ]
        wanted = {one.id for one in walked if isinstance(one, ast.Name)} - seen
        seen |= wanted
        looked_at = [one.value for one in tree.nodes if isinstance(one, ast.Assign) and {name_in(to) for to in one.targets} & wanted]
    called = {name_in(one.func) for one in tree.calls()}
    names = list(dict.fromkeys(_whole_model(name, called) for name in names if name))
    if len(names) != 1:
        raise NoPlace(statement.lineno, NOT_ONE_MODEL)
    return names[0]


def _whole_model(name: str, called: set[str]) -> str:
    """Return the model of which a named module is a part, if the script calls it: `model` of model.classifier."""
    parts = name.split(".")
    wholes = (".".join(parts[:length]) for length in range(1, len(parts)))
    return next((whole for whole in wholes if whole in called and whole != "self"), name)
