"""`dstui check`: its output for people and machines, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dstui.cli import main
from tests import command

GOOD = '{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n'
PLAN = """version: 1
job:
  script: train.py
  args: [--deepspeed_config, "{ds_config}"]
deepspeed:
  train_micro_batch_size_per_gpu: 2
  gradient_clipping: 1.0
  optimizer: {type: AdamW}
  zero_optimization:
    stage: 2
"""


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON of a check."""
    code = main(["check", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def codes(found: dict[str, Any], file: int = 0) -> set[str]:
    return {one["code"] for one in found["files"][file]["diagnostics"]}


def test_valid_file_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, write(tmp_path, "ds.json", GOOD), write(tmp_path, "plan.yaml", PLAN))
    assert (code, found["ok"], found["version"]) == (0, True, 1)
    assert [file["integration"] for file in found["files"]] == ["deepspeed", "deepspeed"]


def test_diagnostic_has_code_path_line_and_patch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", '{\n  "train_micro_batch_size_per_gpu": 2,\n  "zero_optimization": {\n    "stage": 7\n  }\n}\n')
    code, found = report(capsys, file)
    assert code == 1
    (one,) = [d for d in found["files"][0]["diagnostics"] if d["severity"] == "error"]
    assert (one["code"], one["path"], one["line"], one["when"]) == ("DS019", "zero_optimization.stage", 4, "parse")
    assert one["fix"]["patch"] == [{"op": "replace", "path": "/zero_optimization/stage", "value": 3}]


def test_path_in_a_plan_starts_at_the_plans_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "plan.yaml", PLAN.replace("stage: 2", "stage: 2\n    offload_param: {device: cpu}"))
    _, found = report(capsys, file)
    one = next(d for d in found["files"][0]["diagnostics"] if d["code"] == "DS114")
    assert (one["path"], one["line"]) == ("deepspeed.zero_optimization.offload_param", 11)
    assert one["fix"]["patch"][0]["path"] == "/deepspeed/zero_optimization/offload_param"


def test_trainer_fsdp_is_an_error_only_with_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "version: 1\njob: {script: t.py, integration: trainer, args: [--fsdp, full_shard]}\ndeepspeed: {}\n"
    assert "TR004" not in codes(report(capsys, write(tmp_path, "alone.yaml", text))[1])
    given = text.replace("full_shard", "full_shard, --deepspeed, '{ds_config}'")
    assert "TR004" in codes(report(capsys, write(tmp_path, "given.yaml", given))[1])


def test_warnings_fail_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", GOOD.replace("}}", '}, "zero_optimizatoin": {}}'))
    assert report(capsys, file)[0] == 0
    assert report(capsys, file, "--strict")[0] == 1


def test_integration_is_guessed_from_auto_and_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", GOOD.replace("2,", '"auto",', 1))
    code, found = report(capsys, file)
    assert (code, found["files"][0]["integration"]) == (0, "trainer")
    code, found = report(capsys, file, "--integration", "deepspeed")
    assert code == 1 and "DS007" in codes(found)


@pytest.mark.parametrize(
    ("reader", "place"),
    [
        ("deepspeed", "deepspeed.initialize"),
        ("accelerate", "Accelerator() or prepare()"),
        ("trainer", "TrainingArguments() or train()"),
    ],
)
def test_time_of_failure_follows_from_the_integration(tmp_path: Path, capsys: pytest.CaptureFixture[str], reader: str, place: str) -> None:
    plan = PLAN.replace("AdamW", "NoSuch").replace("job:\n", f"job:\n  integration: {reader}\n")
    assert main(["check", write(tmp_path, "plan.yaml", plan)]) == 1
    assert f"error DS079 {tmp_path}/plan.yaml:9 deepspeed.optimizer.type, fails in {place}" in capsys.readouterr().out


def test_world_size_and_release_are_considered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", GOOD.replace("{", '{"train_batch_size": 6, "elasticity": {}, ', 1))
    assert "DS002" not in codes(report(capsys, file)[1])
    assert "DS002" in codes(report(capsys, file, "--world-size", "2")[1])
    assert "DS028" in codes(report(capsys, file)[1])
    assert "DS028" not in codes(report(capsys, file, "--deepspeed-version", "0.17.4")[1])


BAD: list[tuple[str, bytes, str]] = [
    ("cut", b'{"a": 1,', "not JSON"),
    ("list", b"[1, 2]", "a list instead of an object"),
    ("binary", b"\x00\x01\x02{", "binary"),
    ("latin", b'{"a": "\xe4"}', "UTF-8"),
    ("deep", b'{"a":' * 500 + b"1" + b"}" * 500, "nested deeper"),
    ("deeper", b"[" * 100_000, "nested deeper"),
    ("digits", b'{"train_batch_size": ' + b"1" * 5000 + b"}", "digits"),
    ("large", b" " * (5 << 20), "larger than"),
    ("nan", b'{"train_batch_size": NaN}', "no NaN"),
    ("infinity", b'{"train_batch_size": -Infinity}', "no Infinity"),
    ("nan words", b'{"a": True}', "true, false and null"),
    ("placeholder", b'{"a": <<x>>}', "placeholder"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD, ids=[name for name, *_ in BAD])
def test_unreadable_file_gives_a_message_in_time(
    name: str, content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, good = write(tmp_path, "ds.json", content), write(tmp_path, "good.json", GOOD)
    start = time.process_time()
    report(capsys, good)
    a_good_one = time.process_time() - start
    start = time.process_time()
    code, found = report(capsys, file)
    assert time.process_time() - start < 20 * max(a_good_one, 0.01)
    assert code == 2
    assert words in found["files"][0]["error"]
    assert found["files"][0]["diagnostics"] == []


def test_missing_file_gives_a_message_and_others_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, str(tmp_path / "nosuch.json"), write(tmp_path, "ds.json", GOOD))
    assert code == 2
    assert "no such file" in found["files"][0]["error"]
    assert found["files"][1]["error"] is None


def test_invalid_numbers_are_reported_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("1e999", '"8"', "null", "{}", "[]"):
        code, found = report(capsys, write(tmp_path, "ds.json", '{"train_batch_size": ' + value + "}"))
        assert code == 1, value
        assert {d["when"] for d in found["files"][0]["diagnostics"]} & {"parse"}


def test_hjson_is_for_deepspeed_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loose = "# a comment\n" + GOOD.replace("true}", "true,}")
    file = write(tmp_path, "ds.json", loose)
    code, found = report(capsys, file)
    one = next(d for d in found["files"][0]["diagnostics"] if d["code"] == "DS024")
    assert (code, one["severity"]) == (0, "info")
    assert json.loads(one["fix"]["rewrite"]) == json.loads(GOOD)
    code, found = report(capsys, file, "--integration", "trainer")
    one = next(d for d in found["files"][0]["diagnostics"] if d["code"] == "DS024")
    assert (code, one["severity"], one["when"]) == (1, "error", "parse")


def test_byte_order_mark_is_for_deepspeed_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", b"\xef\xbb\xbf" + GOOD.encode())
    assert report(capsys, file)[0] == 0
    assert report(capsys, file, "--integration", "accelerate")[0] == 1


def test_unquoted_word_is_reported_to_become_a_string(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"train_micro_batch_size_per_gpu": 2,\n"bf16": {"enabled": True\n}}'
    _, found = report(capsys, write(tmp_path, "ds.json", text))
    one = next(d for d in found["files"][0]["diagnostics"] if d["code"] == "DS025")
    assert (one["path"], one["line"]) == ("bf16.enabled", 2)
    assert json.loads(one["fix"]["rewrite"])["bf16"] == {"enabled": True}


def test_duplicate_key_is_an_error_with_its_line_for_deepspeed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"train_micro_batch_size_per_gpu": 2,\n "bf16": {},\n "bf16": {"enabled": true}}'
    _, found = report(capsys, write(tmp_path, "ds.json", text))
    one = next(d for d in found["files"][0]["diagnostics"] if d["code"] == "DS023")
    assert (one["line"], one["severity"], one["when"]) == (3, "error", "parse")
    _, found = report(capsys, write(tmp_path, "ds.json", text), "--integration", "trainer")
    assert next(d for d in found["files"][0]["diagnostics"] if d["code"] == "DS023")["severity"] == "warning"


def test_plan_with_invalid_yaml_is_unreadable_and_one_of_wrong_form_is_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = report(capsys, write(tmp_path, "plan.yaml", "version: 1\njob:\n\tscript: x\n"))
    assert code == 2 and "tab" in found["files"][0]["error"] and found["files"][0]["line"] == 3
    code, found = report(capsys, write(tmp_path, "plan.yaml", PLAN.replace("script:", "scrpt:")))
    assert code == 1 and "script" in found["files"][0]["diagnostics"][0]["message"]


def test_text_output_has_line_reason_and_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "plan.yaml", PLAN.replace("stage: 2", "stage: 9"))
    assert main(["check", file]) == 1
    out = capsys.readouterr().out
    assert "stage: 9" in out and f"{file}:10" in out and "fix: write 3" in out and "why: " in out and "\033" not in out


def test_reference_confirms_and_reports_what_no_rule_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path, "good.json", GOOD), write(tmp_path, "bad.json", GOOD.replace('"stage": 2', '"stage": 9'))
    code, found = report(capsys, good, bad, "--oracle", "parse")
    assert code == 1
    assert [file["oracle"]["ok"] for file in found["files"]] == [True, False]
    assert "reads this configuration" in found["files"][0]["diagnostics"][-1]["message"]


def test_reference_can_call_initialize_for_a_few_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adam = '"optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": true}}'
    file = write(tmp_path, "ds.json", GOOD.replace("{", "{" + adam + ", ", 1))
    code, found = report(capsys, file, "--oracle", "init", "--world-size", "2")
    assert (code, found["files"][0]["oracle"]["ok"]) == (0, True)
    _, found = report(capsys, file, "--oracle", "init", "--world-size", "64")
    assert any("more than this check starts" in d["message"] for d in found["files"][0]["diagnostics"])


def test_recorded_machine_is_considered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = {"index": 0, "name": "Tesla V100-SXM2-32GB", "compute_capability": "7.0"}
    machine = write(tmp_path, "machine.json", json.dumps({"version": 1, "gpus": [gpu]}))
    code, found = report(capsys, write(tmp_path, "ds.json", GOOD), "--machine", machine)
    assert code == 1 and "DS052" in codes(found)


def test_judging_release_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", GOOD)
    assert report(capsys, file, "--deepspeed-version", "0.17.4")[1]["deepspeed"] == "0.16.9"
    main(["check", file, "--deepspeed-version", "0.17.4"])
    assert "DeepSpeed 0.17.4 is checked as 0.16.9" in capsys.readouterr().out


def test_invalid_arguments_give_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "ds.json", GOOD)
    for words in (["--deepspeed-version", "new"], ["--world-size", "0"], ["--machine", str(tmp_path / "nosuch")]):
        assert main(["check", file, *words]) == 2
        assert capsys.readouterr().err.startswith("dstui: ")


def test_hundred_files_cost_little_more_than_the_start(tmp_path: Path) -> None:
    files = [write(tmp_path, f"{n}.json", GOOD) for n in range(100)]

    def seconds(names: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dstui.cli", "check", *names], check=True, capture_output=True)
        return time.perf_counter() - start

    assert min(seconds(files) / seconds(files[:1]) for _ in range(3)) < 5


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "# two\nh1 slots=2\nh2 slots=two\n",
            "error PL040 PLAN:3 cluster.hostfile, fails at the launcher|hosts: line 3: 'h2 slots=two' is not",
        ),
        (
            "h1 slots=2\nh1 slots=2\n",
            "error PL040 PLAN:3 cluster.hostfile, fails at the launcher|hosts: line 2: the host 'h1' is given a second time",
        ),
        ("h2 slots=2\n", "error PL006 PLAN:3 cluster.include, fails at the launcher|include names the host 'h1', which is not among h2"),
        (None, "warning PL040 PLAN:3|hosts: no such file"),
    ],
)
def test_mistakes_in_a_hostfile_are_findings(tmp_path: Path, text: str | None, reported: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("version: 1\njob: {script: t.py, args: ['{ds_config}']}\ncluster: {hostfile: hosts, include: h1}\ndeepspeed: {}\n")
    if text is not None:
        (tmp_path / "hosts").write_text(text)
    ran = command.dstui("check", plan)
    for part in reported.replace("PLAN", str(plan)).split("|"):
        assert part in ran.stdout, ran.stdout
