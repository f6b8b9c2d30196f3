"""A ds_config.json with comments, unusual numbers and duplicate keys, in each face."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.plan import load
from dstui.render.jsontext import json_text
from tests.command import dstui

COMMENTED = """\
// for the small cluster
{
  // how many samples
  "train_batch_size": 16, # divisible by 8
  "zero_optimization": {
    "stage": 2,
    /* as large as
     * the network likes */
    "reduce_bucket_size": 2e8
    // to be tuned
  },
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, /* of the paper */ "betas": [0.9, 0.95]}}
  // the end
}
"""
PLAN = """\
deepspeed:
  # for the small cluster
  # how many samples
  train_batch_size: 16  # divisible by 8
  zero_optimization:
    stage: 2
    # as large as
    # the network likes
    reduce_bucket_size: 2e8
  # to be tuned
  optimizer:
    type: AdamW
    params:
      lr: 1e-4  # of the paper
      betas: [0.9, 0.95]
  # the end
"""
TWICE = '{"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, %s\n"train_batch_size": 32}\n'


def test_comments_and_number_spelling_are_kept(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(COMMENTED)
    ran = dstui("import", str(tmp_path / "ds.json"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith(PLAN), ran.stdout
    assert '"reduce_bucket_size": 2e8' in json_text(load(ran.stdout).deepspeed)


def test_comment_without_a_place_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"a": [\n{"b": 1, // inside a list\n"c": 2}]}\n')
    ran = dstui("import", str(tmp_path / "ds.json"))
    assert "inside a list" in ran.stdout or "the comments on lines 2, which a Plan cannot keep" in ran.stderr


@pytest.mark.parametrize("comment", ["", "// as DeepSpeed takes it"])
def test_duplicate_key_is_ds023_in_every_face(tmp_path: Path, comment: str) -> None:
    file = tmp_path / "ds.json"
    file.write_text(TWICE % comment)
    (tmp_path / "train.py").touch()
    says = f"{file}:2: error DS023"
    checked, imported = dstui("check", str(file)), dstui("import", str(file))
    dry = dstui("--headless", str(file), "--dry-run", "--", str(tmp_path / "train.py"), "--deepspeed_config", str(file))
    assert "error DS023 " + f"{file}:2" in checked.stdout and checked.returncode == 1
    assert says in imported.stderr and "train_batch_size: 32" in imported.stdout
    assert says in dry.stderr and dry.returncode == 2, dry.stderr
