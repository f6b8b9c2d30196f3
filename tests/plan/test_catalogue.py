"""The catalogue: its description of keys, and its agreement with the installed DeepSpeed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dstui
from dstui.plan import catalogue
from dstui.plan.catalogue import DATA, NEWEST, RELEASES, lookup, nearest_release, release

EXTRACT = Path(dstui.__file__).parent / "reference" / "extract.py"


def test_key_has_type_default_choices_help_and_source() -> None:
    key = lookup("zero_optimization.stage")
    assert key is not None
    assert (key.type, key.default, key.choices) == ("choice", 0, (0, 1, 2, 3))
    assert "split" in key.help
    assert key.source.startswith("https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/runtime/zero/config.py#L")
    bucket = lookup("zero_optimization.reduce_bucket_size")
    assert bucket is not None and (bucket.minimum, bucket.stages) == (1, (1, 2, 3))


def test_key_of_another_release_says_which() -> None:
    gone = lookup("zero_optimization.mics_shard_size")
    assert gone is not None and gone.until == "0.18.2" and gone.since is None
    new = lookup("zero_optimization.compute_grad_norm")
    assert new is not None and new.since == "0.19.8" and new.until is None
    assert lookup("zero_optimization.mics_shard_size", "0.19.8") is None
    assert lookup("no.such.key") is None


@pytest.mark.parametrize(
    ("asked", "judged"), [(None, "0.19.8"), ("0.17.0", "0.16.9"), ("0.12.6", "0.14.5"), ("1.0.0", "0.19.8"), ("0.19.8+cu128", "0.19.8")]
)
def test_release_without_a_catalogue_uses_the_nearest_older_one(asked: str | None, judged: str) -> None:
    assert nearest_release(asked) == judged


def test_every_key_has_help() -> None:
    for version in RELEASES:
        assert [key.path for key in release(version).keys() if not key.help] == []  # noqa: SIM118
    assert len(catalogue.KEYS) == len(release().records)
    print(f"{len(catalogue.KEYS)} keys of DeepSpeed {NEWEST}")


def test_deprecated_key_names_its_replacement() -> None:
    old = lookup("zero_optimization.cpu_offload")
    assert old is not None and old.deprecated and old.replacement == "offload_optimizer"


DECLARED = """\
# asks DeepSpeed
import json, runpy
runpy.run_path(%r, run_name="__main__")
import deepspeed.runtime.config as c
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig as Z
from deepspeed.runtime.precision_config import DeepSpeedFP16Config as F, DeepSpeedBF16Config as B
from deepspeed.compile.config import CompileConfig as K
def names(m): return [f.alias or n for n, f in m.model_fields.items()]
print("NAMES" + json.dumps({"zero_optimization": names(Z), "fp16": names(F), "bf16": names(B), "compile": names(K)}))
"""
ONE_CHILD = pytest.mark.xdist_group("declared keys")


@pytest.fixture(scope="module")
def declared() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return what the script that writes the catalogue finds, and the fields of DeepSpeed's models by another traversal."""
    code = DECLARED % str(EXTRACT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    return json.loads(done.stdout), json.loads(done.stderr.rpartition("NAMES")[2])  # the script keeps standard output for its answer


@ONE_CHILD
def test_catalogue_equals_the_installed_deepspeed(declared: tuple[dict[str, Any], dict[str, list[str]]]) -> None:
    """A new DeepSpeed release fails here, and the difference is what is new in it."""
    found = declared[0]
    if found["version"] not in RELEASES:
        pytest.fail(
            f"DeepSpeed {found['version']} has no catalogue: dstui/reference/extract.py > dstui/plan/data/deepspeed-{found['version']}.json"
        )
    kept = json.loads((DATA / f"deepspeed-{found['version']}.json").read_text())
    for name in ("removed", "schedulers", "optimizer_types"):
        assert found[name] == kept[name]
    there, here = ({record["path"]: record for record in facts["keys"]} for facts in (found, kept))
    assert sorted(there) == sorted(here)
    assert [path for path in there if there[path] != here[path]] == []


@ONE_CHILD
def test_no_key_of_a_model_is_missing(declared: tuple[dict[str, Any], dict[str, list[str]]]) -> None:
    for section, names in declared[1].items():
        assert [name for name in names if lookup(f"{section}.{name}") is None] == []


def test_lookup_imports_nothing_heavy() -> None:
    code = "import sys; from dstui.plan.catalogue import lookup; lookup('bf16.enabled'); from dstui.check.rules.all_rules import RULES; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "deepspeed", "pydantic", "accelerate", "transformers", "textual"} & set(loaded)
