"""Adapt a plain torch training loop to DeepSpeed by small edits of the user's text.

Pure and conservative: code without a clear place for the change is left as it is and noted with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from dstui.adopt.loop_optimizer import TESTED
from dstui.adopt.loop_parts import LoopParts, find_parts, period, wrapped_model
from dstui.adopt.script_tree import FUNCTIONS, Loop, NoPlace, is_call_of, last_name_in, name_in
from dstui.base.dataclass import dataclass

CONFIG = 'config=os.environ["DSTUI_DS_CONFIG"]'
ACCUMULATION = "gradient_accumulation_steps"
CLIPPING = "gradient_clipping"
STEPS_ONCE = "  # steps once per gradient_accumulation_steps"
MICRO_BATCH = "train_micro_batch_size_per_gpu"
NOT_COMPUTING = (
    "to",
    "train",
    "eval",
    "cuda",
    "half",
    "requires_grad_",
    "load_state_dict",
    "state_dict",
    "named_parameters",
    "apply",
    "get_submodule",
)
"""Methods of a model that compute nothing of a batch."""
UNTESTED = "zero_allow_untested_optimizer"


@dataclass(frozen=True, slots=True)
class Adapted:
    """The changed text, and notes about it: a line (0: the whole script) and a sentence."""

    text: str
    notes: tuple[tuple[int, str], ...]
    needs: Mapping[str, bool | float] = field(default_factory=dict)
    """Keys that the configuration needs for the adapted script."""


@dataclass
class _Edits:
    """Replacements of parts of a text, by byte offsets."""

    source: bytes
    starts: list[int]
    changes: list[tuple[int, int, bytes]] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    notes: list[tuple[int, str]] = field(default_factory=list)
    needs: dict[str, bool | float] = field(default_factory=dict)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.changes.append((*self.span(node), text.encode()))

    def remove(self, node: ast.stmt) -> None:
        """Remove a statement with its line. Other statements on the line stay, and a block keeps a statement."""
        start, end = self.span(node)
        first, last = self.starts[node.lineno - 1], self.starts[node.end_lineno or node.lineno]
        self.taken.add(id(node))
        before, after = self.source[first:start].rstrip(b" \t"), self.source[end:last].lstrip(b" \t")
        if not before and after.strip()[:1] in (b"", b"#"):
            self.changes.append((first, last, b""))
            return
        following = after[1:].lstrip(b" \t")
        if after.startswith(b";") and following.strip():
            cut = start, last - len(following)
        else:
            cut = (first + len(before) - 1, end) if before.endswith(b";") else (start, start)
        free = cut[0] < cut[1] and all(stop <= cut[0] or cut[1] <= begin for begin, stop, _ in self.changes)
        self.changes.append((*cut, b"") if free else (start, end, b"pass"))

    def before(self, node: ast.stmt, text: str) -> None:
        self._insert(self.starts[node.lineno - 1], self._indentation(node), text)

    def after(self, node: ast.stmt, text: str) -> None:
        self._insert(self.starts[node.end_lineno or node.lineno], self._indentation(node), text)

    def _indentation(self, node: ast.stmt) -> bytes:
        """Return the blanks and tabs before the first statement on a statement's line."""
        line = self.source[self.starts[node.lineno - 1] :]
        return line[: len(line) - len(line.lstrip(b" \t"))]

    def _insert(self, at: int, indentation: bytes, text: str) -> None:
        newline = b"" if not at or self.source[at - 1 : at] == b"\n" else b"\n"
        lines = b"".join(indentation + line.encode() + b"\n" if line else b"\n" for line in text.split("\n"))
        self.changes.append((at, at, newline + lines))

    def done(self) -> str:
        pieces, at = [], 0
        for start, end, text in sorted(self.changes, key=lambda change: change[:2]):
            if start < at:
                raise NoPlace(0, "two of the edits overlap")
            pieces += [self.source[at:start], text]
            at = end
        return b"".join([*pieces, self.source[at:]]).decode()


def adapted(text: str) -> Adapted:
    """Return the text with DeepSpeed's lines. Raises NoPlace if the loop is not clear."""
    try:
        return _adapted(text)
    except RecursionError:
        raise NoPlace(0, "its code is nested too deeply to be followed") from None


def _adapted(text: str) -> Adapted:
    newline = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n").removeprefix("\ufeff")
    source = plain.encode()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    parts = find_parts(plain)
    edits = _Edits(source, starts)
    _head(parts, edits)
    _initialize(parts, edits)
    _backward(parts, edits)
    _steps(parts, edits)
    _zero_grads(parts, edits)
    _clipping(parts, edits)
    _data(parts, edits)
    edits.notes += _left_as_they_are(parts)
    _keep_blocks(parts, edits)
    changed = edits.done()
    try:
        compile(changed, "script", "exec", dont_inherit=True)
    except SyntaxError as problem:
        raise NoPlace(0, f"the lines do not fit into it: {problem.msg}") from None
    return Adapted(changed.replace("\n", newline), tuple(sorted(set(edits.notes))), edits.needs)


def _head(parts: LoopParts, edits: _Edits) -> None:
    """Insert the imports and the process group's set-up before anything goes to a GPU."""
    last = parts.last_import
    plain = (alias for one in parts.tree.module.body if isinstance(one, ast.Import) for alias in one.names if not alias.asname)
    head = "" if any(alias.name == "os" for alias in plain) else "import os\n\n"
    edits.after(last, f"{head}import deepspeed\nfrom deepspeed.accelerator import get_accelerator")
    begin = 'get_accelerator().set_device(int(os.environ.get("LOCAL_RANK", "0")))  # "cuda" is this rank\'s own GPU from here on\n'
    begin += "deepspeed.init_distributed()"
    for statement in parts.joined:
        edits.remove(statement)
    if parts.main is not None and parts.begins_in_main():
        edits.before(parts.main.body[0], begin)
    else:
        edits.after(last, f"\n{begin}")


def _initialize(parts: LoopParts, edits: _Edits) -> None:
    model, optimizer = parts.model, parts.optimizer
    for call in parts.wrapped:
        _unwrap(parts, edits, call)
    edits.after(parts.ready(), f"{model}, *_ = deepspeed.initialize(model={model}, optimizer={optimizer.name}, {CONFIG})")
    kind = optimizer.kind
    if kind not in TESTED:
        what = f"DeepSpeed knows no {kind} for ZeRO" if kind else "the class of the optimizer is not seen here"
        message = f"{what}: the configuration needs {UNTESTED}: true"
        edits.needs[UNTESTED] = True
        edits.notes.append((optimizer.statement.lineno, message))


def _unwrap(parts: LoopParts, edits: _Edits, call: ast.Call) -> None:
    """Replace DDP(model) by the model. An assignment of the model to itself goes."""
    model, statement = wrapped_model(call), parts.tree.parent(call)
    assert model is not None
    if isinstance(statement, ast.Assign) and [name_in(target) for target in statement.targets] == [name_in(model)]:
        edits.remove(statement)
    elif not any(one is not call and any(part is call for part in ast.walk(one)) for one in parts.wrapped):
        edits.replace(call, edits.text(model))


def _backward(parts: LoopParts, edits: _Edits) -> None:
    for call in parts.backwards:
        assert isinstance(call.func, ast.Attribute)
        loss, divided = call.func.value, False
        if isinstance(loss, ast.Call) and is_call_of(loss, "scale") and loss.args:
            loss = loss.args[0]
        divided = (isinstance(loss, ast.BinOp) and isinstance(loss.op, ast.Div)) or parts.divides(loss)
        more = [
            edits.text(keyword.value) if keyword.arg is None else f"{keyword.arg}={edits.text(keyword.value)}" for keyword in call.keywords
        ]
        if divided and (parts.guards or any(map(parts.loop_of_micro_batches, parts.steps))):
            more.append("scale_wrt_gas=False")
            edits.notes.append(
                (
                    call.lineno,
                    "the script itself divides the loss by its accumulation: scale_wrt_gas=False prevents DeepSpeed from doing it again",
                )
            )
        edits.replace(call, f"{parts.model_at(call)}.backward({', '.join([edits.text(loss), *more])})")


def _steps(parts: LoopParts, edits: _Edits) -> None:
    for statement in parts.steps:
        if (inner := parts.loop_of_micro_batches(statement)) is not None:
            _step_in_the_loop(parts, edits, statement, inner)
            continue
        guard = parts.accumulation_guard(statement)
        line = f"{parts.model_at(statement)}.step()"
        if guard is None:
            edits.replace(statement, line)
            continue
        edits.before(guard, f"{line}{STEPS_ONCE}")
        edits.remove(statement)
        count = period(guard)
        message = f"the script accumulates: deepspeed.{ACCUMULATION} must be {parts.tree.as_written(count)}"
        if (known := parts.tree.constant(count)) is not None:
            edits.needs[ACCUMULATION] = known
        edits.notes.append((guard.lineno, message))
    for statement in parts.scaler_statements:
        edits.remove(statement)


def _step_in_the_loop(parts: LoopParts, edits: _Edits, statement: ast.stmt, loop: Loop) -> None:
    """Move a step after a loop of micro-batches into that loop: the engine counts the micro-batches itself."""
    passes = loop.iter if isinstance(loop, ast.For) else None
    count = passes.args[0] if isinstance(passes, ast.Call) and name_in(passes.func) == "range" and len(passes.args) == 1 else None
    if count is None:
        raise NoPlace(loop.lineno, "it cannot be seen how many times this loop calls backward() before one step()")
    edits.after(loop.body[-1], f"{parts.model_at(statement)}.step(){STEPS_ONCE}")
    edits.remove(statement)
    if (known := parts.tree.constant(count)) is not None:
        edits.needs[ACCUMULATION] = known
    edits.notes.append((loop.lineno, f"the script accumulates: deepspeed.{ACCUMULATION} must be {parts.tree.as_written(count)}"))


def _zero_grads(parts: LoopParts, edits: _Edits) -> None:
    for statement in parts.zero_grads:
        edits.remove(statement)


def _clipping(parts: LoopParts, edits: _Edits) -> None:
    if not parts.clips:
        edits.needs[CLIPPING] = 0  # DeepSpeed 0.19.8 clips at 1.0 where the key is left out (runtime/constants.py)
    for statement in parts.clips:
        call = getattr(statement, "value", None)
        assert isinstance(call, ast.Call)
        bound = call.args[1] if len(call.args) > 1 else next((one.value for one in call.keywords if one.arg == "max_norm"), None)
        if bound is not None and (number := parts.tree.constant(bound)) is not None:
            edits.needs[CLIPPING] = number
        if name_in(call.func).endswith("clip_grad_value_"):
            message = f"DeepSpeed clips the norm of all gradients, not each value: decide on deepspeed.{CLIPPING}"
            edits.needs.pop(CLIPPING, None)
        elif isinstance(statement, ast.Expr):
            message = f"DeepSpeed clips: deepspeed.{CLIPPING} must be {parts.tree.as_written(bound) if bound is not None else 'its bound'}"
        else:
            message = f"clips gradients that only DeepSpeed has: deepspeed.{CLIPPING} and model.get_global_grad_norm()"
        if isinstance(statement, ast.Expr):
            edits.remove(statement)
        edits.notes.append((statement.lineno, message))


def _data(parts: LoopParts, edits: _Edits) -> None:
    """Give each rank its own part of the data."""
    call = parts.loader
    if call is None:
        message = "no DataLoader was found for this loop: give each rank its own part of the data (deepspeed.comm.get_rank())"
        edits.notes.append((parts.backwards[0].lineno, message))
        return
    given = {keyword.arg: keyword for keyword in call.keywords}
    options = given[None].value if None in given else None  # DataLoader(data, **options)
    by_name = given["batch_size"].value if "batch_size" in given else parts.tree.entry(options, "batch_size")
    size = call.args[1] if len(call.args) > 1 else by_name
    if size is not None and isinstance(number := parts.tree.constant(size), int):
        edits.needs[MICRO_BATCH] = number
    own_sampler = {"sampler", "batch_sampler"} & given.keys() or (options and "sampler" in edits.source.decode())
    if own_sampler or not (call.args or "dataset" in given):
        edits.notes.append((call.lineno, "the script's own sampler: it must give each rank its own part of the data"))
        return
    dataset = _dataset_name(parts, edits, call.args[0] if call.args else given["dataset"].value)
    shuffle = edits.text(given["shuffle"].value) if "shuffle" in given else "False"
    if options is not None and "shuffle" not in given:
        shuffle = f'{edits.text(options)}.get("shuffle", False)'
    if "torch" in parts.modules:
        _give_sampler(edits, call, f"torch.utils.data.DistributedSampler({dataset}, shuffle={shuffle})")
    else:
        message = "give each rank its own part: sampler=DistributedSampler(…); the script does not import torch by this name"
        edits.notes.append((call.lineno, message))
    if shuffle != "False":
        message = "call set_epoch(epoch) on its sampler at the start of each epoch: without it, all epochs have the same order"
        edits.notes.append((call.lineno, message))


def _give_sampler(edits: _Edits, call: ast.Call, sampler: str) -> None:
    """Pass a sampler to a DataLoader: in place of `shuffle`, within its `**options`, or as a further argument."""
    given = {keyword.arg: keyword for keyword in call.keywords}
    if "shuffle" in given:
        node = given["shuffle"]
        start = edits.starts[node.lineno - 1] + node.col_offset
        edits.changes.append((start, edits.span(node.value)[1], f"sampler={sampler}".encode()))
    elif None in given:
        options = given[None].value
        edits.replace(options, f'{{**{edits.text(options)}, "shuffle": False, "sampler": {sampler}}}')
    else:
        end = max(edits.span(one)[1] for one in (*call.args, *(keyword.value for keyword in call.keywords)))
        edits.changes.append((end, end, f", sampler={sampler}".encode()))


def _dataset_name(parts: LoopParts, edits: _Edits, dataset: ast.expr) -> str:
    """Return the dataset as it can be written twice: a call gets a variable before its statement, so that it runs once."""
    statement = parts.tree.statement_of(dataset)
    calls = any(isinstance(one, ast.Call) for one in ast.walk(dataset))
    if not calls or statement is None or "torch" not in parts.modules or isinstance(statement, (ast.While, *FUNCTIONS)):
        return edits.text(dataset)
    names = {one.id for one in parts.tree.nodes if isinstance(one, ast.Name)}
    name = next(one for one in ("dataset", "train_dataset", "dataset_of_ranks") if one not in names)
    edits.before(statement, f"{name} = {edits.text(dataset)}")
    edits.replace(dataset, name)
    return name


def _left_as_they_are(parts: LoopParts) -> Iterator[tuple[int, str]]:
    for call in parts.tree.calls():
        if is_call_of(call, "step") and "sched" in ast.unparse(call.func).lower():
            yield call.lineno, "the script keeps its scheduler: it changes the torch optimizer, whose learning rate DeepSpeed uses"
    for node in parts.tree.nodes:
        if isinstance(node, ast.Call) and name_in(node.func).endswith(("torch.save", "save_pretrained")):
            yield (
                node.lineno,
                f"every rank saves here: {parts.model}.save_checkpoint(FOLDER) on all, or {parts.model}.module.state_dict() on one",
            )
        if isinstance(node, ast.Assign) and node is not parts.optimizer.statement and _passes_forward(parts.model, node.value):
            yield (
                node.lineno,
                f"{ast.unparse(node.value).partition('(')[0]}() does not go through the engine's forward: let forward() return its result",
            )
        if is_call_of(node, "load_state_dict") and isinstance(node, ast.Call) and name_in(node.func).startswith(f"{parts.optimizer.name}."):
            yield node.lineno, "DeepSpeed keeps the optimizer's state itself: resume from save_checkpoint() with load_checkpoint()"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:") and node.value[5:].isdecimal():
            yield node.lineno, f'"{node.value}" is one GPU for all ranks: "cuda" is the rank\'s own'
        if isinstance(node, ast.Call) and name_in(node.func).endswith("amp.scale_loss"):
            yield node.lineno, "apex scales the loss here: leave it switched off, and choose fp16 or bf16 in the configuration"
        if isinstance(node, ast.Call) and last_name_in(node.func) == "autocast":
            yield node.lineno, "autocast is kept: choose it, or bf16 and fp16 in the configuration, not both"


def _passes_forward(model: str, call: ast.expr) -> bool:
    """Return whether a call computes something with the model by another method than forward: `loss = model.loss(x)`."""
    if not isinstance(call, ast.Call):
        return False
    owner, _, name = name_in(call.func).rpartition(".")
    return owner == model and bool(call.args or call.keywords) and name not in NOT_COMPUTING


def _keep_blocks(parts: LoopParts, edits: _Edits) -> None:
    """Remove an emptied `if` of the accumulation; give any other emptied block a `pass`."""
    for node in parts.tree.nodes:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, ())
            if isinstance(block, list) and block and all(id(one) in edits.taken for one in block):
                _keep_block(parts, edits, node, block)


def _keep_block(parts: LoopParts, edits: _Edits, node: ast.AST, block: Sequence[ast.stmt]) -> None:
    first, last = block[0], block[-1]
    start, end = edits.starts[first.lineno - 1], edits.starts[last.end_lineno or last.lineno]
    edits.changes = [change for change in edits.changes if not (start <= change[0] and change[1] <= end and change[0] < change[1])]
    if isinstance(node, ast.If) and not node.orelse and node in parts.guards:
        edits.changes.append((edits.starts[node.lineno - 1], end, b""))
    else:
        edits.changes.append((start, end, b" " * first.col_offset + b"pass\n"))
