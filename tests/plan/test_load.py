"""A Plan is read as written, and its errors have file, line, column and key."""

from __future__ import annotations

import time

import pytest

from dstui.plan import PlanError, load
from dstui.plan.model import NamedModel, help_of

WHOLE = """\
# a comment at the top
version: 1
name: demo
job:
  script: train.py        # relative to workdir
  args: [--epochs, 1.10, --lr, 1e-5, --deepspeed, {ds_config}]
cluster:
  hosts: {worker-1: 8, 10.0.0.2: 4}
  env: {NCCL_DEBUG: INFO, OMP_NUM_THREADS: 1, FLAG: true}
deepspeed:
  optimizer: {type: AdamW, params: {lr: 1e-4, betas: [0.9, 0.999]}}
  zero_optimization: {stage: 3, reduce_bucket_size: 5e8, overlap_comm: yes}
"""


def errors(text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        load(text, "plan.yaml")
    return str(caught.value).splitlines()


def test_scientific_notation_is_a_number_and_yes_a_string() -> None:
    plan = load(WHOLE)
    assert plan.get("deepspeed.optimizer.params.lr") == 1e-4
    assert plan.get("deepspeed.zero_optimization.overlap_comm") == "yes"
    assert plan.get("deepspeed.zero_optimization.reduce_bucket_size").spelling == "5e8"


def test_arguments_and_variables_are_strings_as_spelled() -> None:
    plan = load(WHOLE)
    assert plan.job.args == ("--epochs", "1.10", "--lr", "1e-5", "--deepspeed", "{ds_config}")
    assert plan.cluster.env == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1", "FLAG": "true"}


def test_host_with_dots_is_reached_by_a_dotted_path() -> None:
    plan = load(WHOLE)
    assert plan.get("cluster.hosts.10.0.0.2") == 4
    assert plan.set("cluster.hosts.10.0.0.2", 2).cluster.hosts == {"worker-1": 8, "10.0.0.2": 2}


def test_unedited_plan_has_the_same_text() -> None:
    assert load(WHOLE).text == WHOLE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\njob:\n\tscript: x\n", "plan.yaml:3:1: a tab where YAML wants spaces: indent with spaces"),
        (
            "version: 1\njob: {script: a}\njob: {script: b}\n",
            "plan.yaml:3:1: job: the key 'job' is given a second time (first on line 2)",
        ),
        ("version: 1\njob: {scrpt: a.py}\n", "plan.yaml:2:14: job.scrpt: unknown key; did you mean 'script'?"),
        ("version: 1\njob: {script: a}\nclustr: {}\n", "plan.yaml:3:9: clustr: unknown key; did you mean 'cluster'?"),
        ("version: 1\njob: {script: a}\nfp16: {}\n", "plan.yaml:3:7: fp16: unknown key; it is DeepSpeed's: write deepspeed.fp16"),
        ("version: 7\njob: {script: a}\n", "plan.yaml:1:10: version: 7: this dstui reads version 1: update dstui"),
        (
            "version: 1\njob: {script: a, integration: trainr}\n",
            "plan.yaml:2:31: job.integration: 'trainr' is not one of deepspeed, trainer, accelerate; did you mean 'trainer'?",
        ),
        (
            "version: 1\njob: {script: a}\ncluster: {cpu_ranks: two}\n",
            "plan.yaml:3:22: cluster.cpu_ranks: expected a whole number, not 'two'",
        ),
        ("version: 1\njob: {script: a, module: b}\n", "plan.yaml:2:26: job.module: script and module are both given: keep one"),
        ("version: 1\njob: a: b\n", "plan.yaml:2:7: a second ': ' here, or an indentation that does not fit the line above: quote the value, or align the key"),
        ("", "plan.yaml: the file is empty"),
        ("- 1\n", "plan.yaml:1:1: a Plan is a mapping: `version: 1`, `job:`, `deepspeed:` …"),
        ("version: 1\nname: x\n", "plan.yaml:1:1: neither job: nor deepspeed: is given: this is not a Plan"),
        ("version: 1\njob: {script: !!python/name:os.system x}\n", "plan.yaml:2:15: job.script: a tag (!…): a Plan holds plain values only"),
    ],
)  # fmt: skip
def test_error_has_line_column_key_and_advice(text: str, expected: str) -> None:
    assert errors(text) == [expected]


def test_all_errors_are_reported_at_once() -> None:
    found = errors("version: 1\njob: {script: 3, args: x}\nrun: {silence: 0}\nmodel: {lora: 5}\n")
    assert [line.split(": ")[1] for line in found] == ["job.args", "model.lora", "run.silence"]


def test_keys_for_later_versions_are_kept_and_type_checked() -> None:
    plan = load("version: 1\njob: {script: a}\nmodels: {teacher: {role: inference}}\naccelerate: {x: [1]}\nrun: {restarts: {max: 2}}\n")
    assert plan.models == {"teacher": NamedModel(role="inference")}
    assert plan.accelerate == {"x": [1]}
    assert plan.run.restarts.max == 2
    assert errors("version: 1\njob: {script: a}\nrun: {restarts: {mx: 2}}\n") == [
        "plan.yaml:3:22: run.restarts.mx: unknown key; did you mean 'max'?"
    ]


def test_unknown_deepspeed_keys_are_kept() -> None:
    plan = load("version: 1\njob: {script: a}\ndeepspeed: {not_yet_known: {x: 1}}\n")
    assert plan.deepspeed == {"not_yet_known": {"x": 1}}


def test_anchor_is_read_and_editing_its_alias_is_refused() -> None:
    plan = load("version: 1\njob: {script: a}\ndeepspeed:\n  bf16: &on {enabled: true}\n  fp16: *on\n")
    assert plan.deepspeed["fp16"] == {"enabled": True}
    with pytest.raises(PlanError, match=r"deepspeed\.fp16 is an alias of line 4"):
        plan.set("deepspeed.fp16.enabled", False)


def test_file_that_expands_to_billions_of_values_is_refused_quickly() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    began = time.monotonic()
    (message,) = errors("version: 1\njob: {script: a}\ndeepspeed:\n" + "".join(f"  {level}\n" for level in levels))
    assert "it expands to more than 50,000 values" in message
    assert time.monotonic() - began < 10


def test_deep_nesting_is_an_error_without_a_crash() -> None:
    (message,) = errors("version: 1\njob: {script: a}\ndeepspeed: " + "[" * 2000 + "]" * 2000 + "\n")
    assert "nested deeper than 60 levels" in message


def test_list_in_place_of_variables_is_an_error() -> None:
    assert "expected a mapping NAME: value, not a list" in errors("version: 1\njob: {script: t.py}\ncluster: {env: [a]}\n")[0]


def test_model_facts_are_typed_and_bounded() -> None:
    model = load(
        "version: 1\njob: {script: a}\nmodel:\n  source: x/y\n  trainable: 0.91e9\n  quantization: nf4\n  attention: flash\n  fused_loss: true\n"
        "  lora: {r: 16, target_modules: [q_proj, 1e3]}\n"
    ).model
    assert model and model.lora
    assert (model.trainable, model.quantization, model.attention, model.fused_loss) == (0.91e9, "nf4", "flash", True)
    assert (model.lora.r, model.lora.alpha, model.lora.target_modules) == (16, 8, ("q_proj", "1e3"))
    assert help_of("model.lora.r") and help_of("run.restarts.max") and not help_of("model.lora.rank")


@pytest.mark.parametrize(
    ("written", "path", "says"),
    [
        ("params: .inf", "model.params", "expected a number"),
        ("params: -7e9", "model.params", "is less than 1"),
        ("params: 1e30", "model.params", "is more than 1e+14"),
        ("quantization: nf5", "model.quantization", "did you mean 'nf4'?"),
        ("lora: {rank: 8}", "model.lora.rank", "unknown key"),
        ("lora: {r: 0}", "model.lora.r", "is less than 1"),
        ("lora: {target_modules: {a: 1}}", "model.lora.target_modules", "a list of words or a word"),
    ],
)
def test_invalid_model_numbers_are_named(written: str, path: str, says: str) -> None:
    (found,) = errors(f"version: 1\njob: {{script: a}}\nmodel: {{{written}}}\n")
    assert f"{path}: " in found and says in found
