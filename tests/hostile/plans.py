"""Generated Plans, DeepSpeed and accelerate configurations, and recorded machines: mostly valid, partly random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.plan.accelerate_keys import PLUGIN, TOP
from dstui.plan.catalogue import KEYS
from dstui.plan.load import FIELDS
from tests.hostile.values import Values, dump_json
from tests.machines import gpus, joined, machine

GOOD: dict[str, Any] = {
    "str": "train.py", "int": 2, "bool": True, "number": 1, "host": "localhost", "module": "pkg.train", "words": ["--epochs", "1"],
    "words or str": "all-linear", "option": "a100", "options": ["--mail-type=END"], "lines": ["module load cuda"], "env": {"OMP_NUM_THREADS": "1"}, "slots": {"localhost": 2},
    "labels": {"cpu": "16"}, "secrets": {"HF_TOKEN": "hf-secret/token"}, "patterns": {"reward": "reward=([0-9.]+)"},
}  # fmt: skip
"""Kind of a field -> valid values."""
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV12\t0-7\t0\nGPU1\tNV12\tX\t0-7\t0\n"
NOT_TOGETHER = ("module", "hostfile", "include", "exclude", "num_nodes", "num_gpus", "launcher", "cpu_binding", "env_file")
"""Fields that exclude each other, or need a machine that does not exist."""
TEXTS = ("[" * 50_000, "- " * 30_000, '{"a":' * 20_000, "", "\x00", "key: " * 300, '"' * 999, "/*" * 999)


def config(values: Values) -> dict[str, Any]:
    """Return a DeepSpeed configuration: known keys with values of any kind, and unknown keys."""
    found: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1}
    for _ in range(values.random.randrange(8)):
        path = values.text()[:50] if values.bad() else values.one_of(*KEYS)
        known = KEYS.get(path)
        *parents, last = path.split(".")
        at = found
        for part in parents:
            inner = at.setdefault(part, {})
            at = inner if isinstance(inner, dict) else at
        at[last] = values.value() if values.bad() or not known else known.default
    more = values.one_of({}, {}, {"deep": values.deep()}, values.many(), {"many": values.many()}) if values.chance(0.05) else {}
    return {**found, **more}


def plan(values: Values) -> dict[str, Any]:
    """Return a Plan."""
    data: dict[str, Any] = {
        "version": 1,
        "name": values.text() if values.bad() else "small",
        "job": {"script": "train.py"},
        "deepspeed": config(values),
    }
    for path, specs in FIELDS.items():
        at = data
        for part in path:
            inner = at.setdefault(part, {})
            at = inner if isinstance(inner, dict) else {}
        for name, spec in values.random.sample(sorted(specs.items()), values.random.randrange(min(len(specs), 4))):
            if spec.metadata["of"] is None and (name not in NOT_TOGETHER or values.bad()):
                at[name] = _field(values, spec.metadata)
    if values.bad():
        data[values.one_of("accelerate", "models", "run", "cluster", values.text())] = values.value()
    return data


def _field(values: Values, about: Mapping[str, Any]) -> Any:
    kind = about["kind"]
    if not values.bad():
        return values.one_of(*about["choices"]) if about["choices"] else GOOD[kind]
    if kind in ("env", "slots", "patterns", "labels", "secrets") and values.chance(0.7):
        return {values.text(): values.number() if kind == "slots" else values.text() for _ in range(values.random.randrange(1, 4))}
    if kind == "words" and values.chance(0.7):
        return [values.text() for _ in range(values.random.randrange(4))]
    return values.text() if kind in ("str", "host", "module") else values.value()


def accelerate(values: Values) -> str:
    """Return an accelerate YAML."""
    data: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "distributed_type": values.one_of("DEEPSPEED", "NO", values.text())}
    for name in values.random.sample(sorted(TOP), 4):
        data.setdefault(name, values.value())
    if values.chance(0.8):
        data["deepspeed_config"] = {name: values.value() for name in values.random.sample(sorted(PLUGIN), 4)}
    return "\n".join(f"{name}: {dump_json(value)}" for name, value in data.items())


def model_config(values: Values) -> str:
    """Return a model's config.json."""
    widths = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 1000,
        "num_experts": 4,
    }
    more = {
        "num_key_value_heads": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0],
        "tie_word_embeddings": True,
    }
    data: dict[str, Any] = {
        "model_type": values.one_of("llama", "qwen2_moe", "mixtral", "gpt2", "t5", "bert", values.text()),
        **widths,
        **more,
    }
    text = dump_json({name: values.value() if values.bad() else value for name, value in data.items()})
    return values.corrupted(text) if values.bad() else text


def recorded(values: Values) -> str:
    """Return a recorded machine or a pasted topology matrix."""
    if values.chance(0.3):
        return values.corrupted(MATRIX) if values.bad() else MATRIX
    count = values.one_of(0, 2, 8)
    data: dict[str, Any] = machine(*gpus(count), links=joined(count)).to_json()
    places = [data["host"], data["software"], *data["gpus"][:1], data]
    for at in filter(lambda _place: values.bad(), places):
        at[values.one_of(*sorted(at), values.text())] = values.value()
    return values.corrupted(dump_json(data)) if values.bad() else dump_json(data)


KINDS = ("plan", "plan", "plan", "config", "config", "accelerate", "text")


def document(values: Values, kind: str) -> tuple[str, bytes]:
    """Return the usual suffix and the content of a file of this kind."""
    if kind == "text":
        suffix, text = values.one_of(".yaml", ".json"), values.one_of(*TEXTS)
    elif kind == "accelerate":
        suffix, text = ".yaml", accelerate(values)
    else:
        data = plan(values) if kind == "plan" else config(values)
        suffix, text = ".yaml" if kind == "plan" else ".json", dump_json(data, values.one_of(None, 1))
    if values.chance(values.badness / 2):
        text = values.corrupted(text)
    raw = text.encode("utf-8", "surrogatepass" if values.bad() else "backslashreplace")
    return suffix, values.one_of(b"\xef\xbb\xbf", b"\xff\xfe", b"\xe9") + raw if values.chance(0.02) else raw
