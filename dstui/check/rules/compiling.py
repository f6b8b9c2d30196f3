"""Rules about DeepCompile and features that it can be combined with."""

from __future__ import annotations

from dstui.check.context import Context
from dstui.check.rule import Problems, rule

ON = "compile.deepcompile"
INIT = "compile/init_z3.py"


def compiles_deep(c: Context) -> bool:
    """Return whether DeepCompile is on at a stage where it works."""
    return c.on(ON) and c.stage > 0


@rule("DS216", "warning", says="Currently DeepCompile supports ZeRO stage 1, 2, or 3 only", source="runtime/engine.py:5806", since="0.16.9")
def without_zero(c: Context) -> Problems:
    """DeepCompile at stage 0: the usual compiler is used."""
    if c.on(ON) and c.stage == 0:
        yield c.problem(ON, "deepcompile works at ZeRO stage 1, 2 and 3: the usual compiler is used", fix=c.drop(ON, "remove deepcompile"))


@rule("DS217", "error", when="run", says="dc.so: cannot open shared object file", source="compile/util.py", since="0.16.9")
def on_cpu(c: Context) -> Problems:
    """DeepCompile on ranks without a GPU."""
    if compiles_deep(c) and c.cpu_only:
        yield c.problem(ON, "deepcompile needs NVIDIA GPUs", fix=c.drop(ON, "remove deepcompile"))


@rule("DS219", "error", when="run", says="compile.offload_opt_states cannot be combined with", source=f"{INIT}:93", since="0.19.8")
def states_offloaded_twice(c: Context) -> Problems:
    """DeepCompile and ZeRO both offload the optimizer."""
    path = "compile.offload_opt_states"
    if compiles_deep(c) and c.stage == 3 and c.on(path) and c.offload("optimizer") != "none":
        yield c.problem(path, "offload_opt_states cannot be combined with offload_optimizer", fix=c.drop(path, "remove offload_opt_states"))


@rule("DS220", "error", when="run", says="compile.offload_activation cannot be combined with", source=f"{INIT}:100", since="0.19.8")
def activations_and_more(c: Context) -> Problems:
    """DeepCompile offloads activations and something else."""
    path = "compile.offload_activation"
    if compiles_deep(c) and c.stage == 3 and c.on(path) and (c.on("compile.offload_parameters") or c.on("compile.offload_opt_states")):
        yield c.problem(
            path, "offload_activation cannot be combined with the other offloads of compile", fix=c.drop(path, "remove offload_activation")
        )


@rule(
    "DS221",
    "error",
    when="run",
    says="offload_parameters and offload_opt_states cannot be enabled together",
    source=f"{INIT}:148",
    since="0.19.8",
)
def parameters_and_states(c: Context) -> Problems:
    """DeepCompile offloads parameters and optimizer states."""
    path = "compile.offload_parameters"
    if compiles_deep(c) and c.stage == 3 and c.on(path) and c.on("compile.offload_opt_states"):
        yield c.problem(path, "offload_parameters and offload_opt_states cannot be combined", fix=c.drop(path, "remove offload_parameters"))


@rule("DS224", "warning", says="Currently AutoSP does not compose with ZeRO stage 2 and 3", source="runtime/engine.py:5774", since="0.19.8")
def sequence_pass(c: Context) -> Problems:
    """The AutoSP pass at ZeRO stage 2 or 3: the usual compiler is used."""
    chosen = c.value("compile.passes")
    if c.on(ON) and isinstance(chosen, list) and "autosp" in chosen and c.stage > 1:
        message = f"the pass autosp does not work at ZeRO stage {c.stage}: the usual compiler is used, and the sequence is not split"
        yield c.problem("compile.passes", message, fix=c.put("zero_optimization.stage", 1, "use stage 1"))


@rule("DS222", "error", when="run", says="The AutoTP compile pass cannot yet be combined", source="runtime/engine.py:5843", since="0.19.8")
def passes(c: Context) -> Problems:
    """The AutoTP pass combined with another pass."""
    chosen = c.value("compile.passes")
    if c.on(ON) and isinstance(chosen, list) and "autotp" in chosen and len(set(chosen)) > 1:
        yield c.problem(
            "compile.passes",
            "the pass autotp cannot be combined with other passes",
            fix=c.put("compile.passes", ["autotp"], "keep autotp only"),
        )


@rule("DS223", "error", when="run", says="compile.autoep_non_moe=True", source="runtime/engine.py:5889-5912", since="0.19.8")
def experts_apart(c: Context) -> Problems:
    """autoep_non_moe with something that it cannot be combined with."""
    path = "compile.autoep_non_moe"
    offloads = {c.offload("optimizer"), c.offload("param")} - {"none"}
    if c.on(path) and (c.on(ON) or c.stage == 3 or offloads or (c.number("tensor_parallel.autotp_size") or 0) > 1):
        message = "autoep_non_moe cannot be combined with DeepCompile, stage 3, offload or tensor parallelism"
        yield c.problem(path, message, fix=c.drop(path, "remove autoep_non_moe"))
