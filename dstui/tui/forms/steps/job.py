"""Step 2: the script, and how the configuration reaches it."""

from __future__ import annotations

from dataclasses import replace

from dstui.tui.forms.fields import Field, Option
from dstui.tui.forms.steps.step import Step, model_choice, role
from dstui.tui.session.state import UNSET, State

J, M, R = "job.", "model.", "run."

INTEGRATIONS = (
    Option(value="deepspeed", label="deepspeed", says="deepspeed.initialize"),
    Option(value="trainer", label="trainer", says="transformers' Trainer"),
    Option(value="accelerate", label="accelerate", says="Accelerator()"),
)
OBSERVE = (
    Option(value="engine", label="engine", says="each step of DeepSpeed's engine"),
    Option(value="process", label="process", says="stacks and ends alone"),
    Option(value="off", label="off", says="no hook in the ranks"),
)
BUILDERS = (
    Option(value="config", label="config", says="ds_config.json names it"),
    Option(value="script", label="script", says="the script builds it"),
)
NO_OPTIMIZER = Option(value="none", label="none", says="nothing is trained: ZeRO inference")


STORED = (
    Option(value=UNSET, label="they are", says="16 or 32 bit, as loaded"),
    Option(value="int8", label="int8", says="1 byte each (bitsandbytes)"),
    Option(value="nf4", label="nf4", says="half a byte each (QLoRA)"),
)


def lora_fields(state: State) -> tuple[Field, ...]:
    """Return the fields of LoRA; its numbers only if it is on."""
    on = state.plan.get(f"{M}lora", None) is not None
    switch = Field(
        path=f"{M}lora",
        label="LoRA",
        kind="toggle",
        read=lambda _state: on,
        write=lambda _state, wanted: ((f"{M}lora", {"r": 8} if wanted else UNSET),),
    )
    numbers = (
        Field(path=f"{M}lora.r", label="LoRA rank", kind="number"),
        Field(path=f"{M}lora.alpha", label="LoRA alpha", kind="number"),
        Field(path=f"{M}lora.target_modules", label="LoRA layers", kind="words"),
    )
    return (switch, *(numbers if on else ()))


def _no_script(state: State) -> str:
    return "module is given" if state.plan.job.module else ""


def _no_module(state: State) -> str:
    return "script is given" if state.plan.job.script else ""


def _value(state: State) -> str:
    job = state.plan.job
    return job.script.rpartition("/")[2] if job.script else job.module.rpartition(".")[2] if job.module else "".join(job.command[:1]) or "–"


JOB = Step(
    id="job",
    title="Job",
    question="Which script trains, and how does it get the configuration?",
    owns=("job", "model", "models", "run", "name", "version", "accelerate"),
    value=_value,
    fields=lambda state: (
        Field(
            path="name", label="Name", title="Job", help=lambda _state: "The name of the run and the beginning of its job folder's name."
        ),
        Field(path=f"{J}script", label="Script", disabled=_no_script),
        Field(path=f"{J}module", label="Module", disabled=_no_module),
        Field(path=f"{J}args", label="Arguments", kind="words"),
        Field(path=f"{J}workdir", label="Working folder"),
        Field(path=f"{J}python", label="Interpreter"),
        Field(path=f"{J}integration", label="Who reads the config", kind="choice", options=INTEGRATIONS, title="Integration"),
        Field(path=f"{J}optimizer", label="Optimizer from", kind="choice", options=(*BUILDERS, NO_OPTIMIZER)),
        Field(path=f"{J}scheduler", label="Scheduler from", kind="choice", options=BUILDERS),
        *(replace(one, title="Model") for one in model_choice(state)),
        *role(state),
        Field(path=f"{M}source", label="Model", title="" if state.plan.models else "Model"),
        Field(path=f"{M}params", label="Parameters", kind="number"),
        Field(path=f"{M}sequence_length", label="Sequence length", kind="number", unit="tokens"),
        Field(path=f"{M}activation_checkpointing", label="Recompute activations", kind="toggle", default=UNSET),
        *lora_fields(state),
        Field(path=f"{M}quantization", label="Frozen weights as", kind="choice", options=STORED, default=UNSET),
        Field(path=f"{R}restarts.max", label="Restart after failure", kind="number", unit="times", default=0, title="While it runs"),
        Field(path=f"{R}silence", label="Silent after", kind="number", unit="seconds"),
        Field(path=f"{R}host_lost", label="Host lost after", kind="number", unit="seconds"),
        Field(path=f"{R}metrics", label="Your own metrics", kind="patterns"),
        Field(path=f"{R}observe", label="Observe the ranks", kind="choice", options=OBSERVE),
        Field(path=f"{R}on_end", label="Notify at the end"),
    ),
)
