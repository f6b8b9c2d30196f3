"""`dstui import`, and files of other kinds that are opened directly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.adopt.script import ScriptFacts
from dstui.base.files import FileProblem
from dstui.documents.open import open_document, open_text, plan_of_both
from dstui.documents.training_script import script_facts_of
from dstui.plan import load
from tests import command
from tests.adopt.plain_loops import FLAT

HERE = {
    "ds.json": '{"train_batch_size": 8}',
    "acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n",
    "run.sh": "#!/bin/sh\ndeepspeed train.py --deepspeed ds.json\n",
    "hosts": "# two\nn1 slots=4\nn2 slots=4\n",
    ".deepspeed_env": "NCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME=eth0\n",
    "train.py": "from accelerate import Accelerator\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in HERE.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_of_a_folder_with_a_launch_are_named(folder: Path) -> None:
    (folder / "Makefile").write_text("t:\n\ttorchrun t.py\n")
    (folder / "notes.txt").write_text("# deepspeed t.py\n")
    ran = dstui("import", ".", folder=folder)
    assert ran.returncode == 2 and ran.stderr == "dstui: . is a folder: name a file in it: Makefile, run.sh\n"


def dstui(*words: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return command.dstui(*words, cwd=folder, given=given)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("ds.json", "deepspeed.train_batch_size", 8),
        ("acc.yaml", "deepspeed.zero_optimization.stage", 2),
        ("run.sh", "job.script", "train.py"),
        ("hosts", "cluster.hosts.n2", 4),
        (".deepspeed_env", "cluster.env.NCCL_SOCKET_IFNAME", "eth0"),
    ],
)
def test_each_kind_of_file_opens_as_an_unnamed_plan(folder: Path, name: str, path: str, value: object) -> None:
    opened = open_document(name)
    assert opened.plan.get(path) == value
    assert (opened.path, opened.made) == (None, True)


@pytest.mark.parametrize("name", sorted(HERE.keys() - {"train.py"}))
@pytest.mark.parametrize("numbered", ["{} {}", "  {}\t{}", "{:3} | {}"])
def test_copied_line_numbers_are_removed_from_a_paste(folder: Path, name: str, numbered: str) -> None:
    text = '{\n  "train_batch_size": 8\n}\n' if name == "ds.json" else HERE[name].replace("deepspeed_config: {", "deepspeed_config:\n  {")
    copied = "".join(f"{numbered.format(number, line)}\n" for number, line in enumerate(text.splitlines(), 9))
    assert open_text(copied, 0).plan.data == open_text(text, 0).plan.data != {}


def test_command_with_leading_variables_is_a_command(folder: Path) -> None:
    done = dstui(
        "import",
        "-",
        folder=folder,
        given="CUDA_VISIBLE_DEVICES=1 NCCL_DEBUG=INFO deepspeed --include localhost:0 train.py --deepspeed ds.json\n",
    )
    plan = load(done.stdout)
    assert (plan.job.script, plan.cluster.include) == ("train.py", "localhost:0"), done.stderr
    assert plan.cluster.env == {"CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    "given", [b"deepspeed train.py --name caf\xe9\n", b"\xff\xfea", b"a\0b", b"#" * 2**21], ids=["Latin-1", "alone", "binary", "large"]
)
def test_pasted_binary_gives_a_message(folder: Path, given: bytes) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}  # as in any locale but C
    words = [sys.executable, "-m", "dstui", "import", "-"]
    done = subprocess.run(words, cwd=folder, env=env, input=given, capture_output=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(b"dstui: standard input") and done.stderr.count(b"\n") == 1, done.stderr


def test_invalid_line_of_a_deepspeed_env_is_reported(folder: Path) -> None:
    (folder / ".deepspeed_env").write_text("# ours\nNCCL_IB_DISABLE=1\n\nFOO BAR\n")
    done = dstui("import", ".deepspeed_env", folder=folder)
    assert (done.returncode, done.stdout) == (2, "") and ".deepspeed_env:4: 'FOO BAR' is not a variable" in done.stderr


def test_imported_configuration_renders_again_without_a_script(folder: Path) -> None:
    old = '{"train_batch_size": 16, "zero_optimization": true, "optimizer": {"type": "Adam", "params": {"lr": 4e-4}}}'
    (folder / "ds.json").write_text(old)
    assert dstui("import", "ds.json", "-o", "p.yaml", folder=folder).returncode == 0
    rendered = dstui("render", "p.yaml", "--only", "ds_config", folder=folder)
    assert (json.loads(rendered.stdout), rendered.stderr) == (json.loads(old), "")


def test_accelerate_yaml_takes_its_script(folder: Path) -> None:
    plan = open_document("acc.yaml", script=["train.py", "--num_gpus", "3"]).plan
    assert (plan.job.script, plan.job.args, plan.job.integration) == ("train.py", ("--num_gpus", "3"), "accelerate")


def test_script_and_yaml_beside_it_are_one_plan(folder: Path) -> None:
    plan = plan_of_both("acc.yaml", "train.py").plan
    assert (plan.job.script, plan.job.args, plan.job.integration, plan.cluster.hosts) == ("train.py", (), "accelerate", {"localhost": 2})


def test_import_prints_or_writes_a_plan_and_never_overwrites_unasked(folder: Path) -> None:
    done = dstui("import", "acc.yaml", folder=folder)
    assert done.returncode == 0 and load(done.stdout).cluster.hosts == {"localhost": 2}
    assert dstui("import", "acc.yaml", "-o", "plan.yaml", folder=folder).returncode == 0
    assert (folder / "plan.yaml").read_text() == done.stdout
    again = dstui("import", "ds.json", "-o", "plan.yaml", folder=folder)
    assert again.returncode == 2 and "--force" in again.stderr
    assert dstui("import", "ds.json", "-o", "plan.yaml", "--force", folder=folder).returncode == 0


def test_several_files_are_one_plan_and_contradictions_are_reported(folder: Path) -> None:
    done = dstui("import", "run.sh", "hosts", ".deepspeed_env", folder=folder)
    plan = load(done.stdout)
    assert plan.cluster.hosts == {"n1": 4, "n2": 4} and plan.cluster.env["NCCL_IB_DISABLE"] == "1"
    assert plan.job.script == "train.py" and plan.deepspeed["train_batch_size"] == 8
    assert "cluster.hosts" in dstui("import", "acc.yaml", "hosts", folder=folder).stderr


def test_launch_is_read_from_standard_input(folder: Path) -> None:
    done = dstui("import", "-", folder=folder, given="torchrun --nproc_per_node 2 train.py --x 1 | tee log\n")
    assert load(done.stdout).job.args == ("--x", "1")
    typed = dstui("import", "--", "torchrun", "--nproc_per_node", "2", "train.py", "--x", "a b", folder=folder)
    assert load(typed.stdout).job.args == ("--x", "a b")
    given = "deepspeed a.py\ndeepspeed b.py\n"
    assert load(dstui("import", "-", "--launch", "2", folder=folder, given=given).stdout).job.script == "b.py"
    assert "the text has 2" in dstui("import", "-", "--launch", "3", folder=folder, given=given).stderr
    given = "deepspeed train.py --config </path/to/c.json> \\\n --data </data>\n"
    assert load(dstui("import", "-", folder=folder, given=given).stdout).job.args == ("--config", "${PATH_TO_C_JSON}", "--data", "${DATA}")


NOTEBOOK_CELLS = (
    "import os\nlr = 3e-5  # small\nname = 'a b'\nwhich = choose()\nos.environ['X_A'] = 'yes'",
    ["%env X_B=two words\n", "!pip install -q deepspeed"],
    '%%writefile conf.json\n{"zero_optimization": {"stage": 3}, "train_batch_size": 4}',
    "%%bash\ncd nowhere; X_C=lost",
    [
        "if True:\n",
        "    !deepspeed --num_gpus=1 train.py --lr {lr} --name '{name}' \\\n",
        "      --which {which} --deepspeed_config conf.json",
    ],
)


def test_launch_in_a_notebook_is_read_with_its_variables(folder: Path) -> None:
    cells = [{"cell_type": "code", "source": source} for source in NOTEBOOK_CELLS]
    notebook = {"cells": [{"cell_type": "markdown", "source": "!deepspeed never.py"}, *cells], "metadata": {}, "nbformat": 4}
    (folder / "run.ipynb").write_text(json.dumps(notebook))
    plan = open_document("run.ipynb").plan
    assert (plan.job.script, dict(plan.cluster.env)) == ("train.py", {"X_A": "yes", "X_B": "two words"})
    assert list(plan.job.args) == ["--lr", "3e-5", "--name", "a b", "--which", "${which}", "--deepspeed_config", "{ds_config}"]
    assert plan.deepspeed["zero_optimization"] == {"stage": 3}


@pytest.mark.parametrize("text", ["", "[]", '{"nbformat": 4', '{"nbformat": 4, "cells": [1, {"cell_type": "code", "source": {}}]}'])
def test_notebook_without_a_launch_gives_a_message(folder: Path, text: str) -> None:
    (folder / "run.ipynb").write_text(text)
    with pytest.raises(FileProblem):
        open_document("run.ipynb")


@pytest.mark.parametrize("words", [("ls",), ("deepspeed",)])
def test_command_that_starts_no_training_is_said_to_be_none(folder: Path, words: tuple[str, ...]) -> None:
    done = dstui("import", "--", *words, folder=folder)
    assert (done.returncode, done.stdout) == (2, "") and "starts training" in done.stderr and "mapping" not in done.stderr


@pytest.mark.parametrize("launch", ["$starter train.py", "torchrun $starter train.py"])
def test_value_decided_at_run_time_names_the_command_that_reads_it(folder: Path, launch: str) -> None:
    branch = 'if [ "$(hostname)" = a ]; then starter="torchrun --nnodes 2"; else starter=torchrun; fi'
    (folder / "go.sh").write_text(f"{branch}\n{launch}\n")
    done = dstui("import", "go.sh", folder=folder)
    assert done.returncode == 2 and "line 2" in done.stderr
    assert "decides while it runs: `dstui run --hold -- bash go.sh` reads it" in done.stderr and "ARGUMENTS" not in done.stderr


def test_branch_on_an_argument_is_read_with_the_argument(folder: Path) -> None:
    (folder / "go.sh").write_text(
        'if [ $# -lt 1 ]; then exit 1; fi\ncase "$1" in\n small) layers=2;;\n large) layers=20;;\nesac\ndeepspeed train.py --layers $layers\n'
    )
    refused = dstui("import", "go.sh", folder=folder)
    assert refused.returncode == 2 and "so may `dstui import -- bash go.sh ITS ARGUMENTS`" in refused.stderr
    assert load(dstui("import", "--", "bash", "go.sh", "large", folder=folder).stdout).job.args == ("--layers", "20")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('if [ "$M" = bert ]; then F=--b; else exit 1; fi\ntorchrun train.py $F\n', "torchrun in line 2 is not reached"),
        ('case "$M" in a) X=1;; *) exit 1;; esac\ntorchrun train.py --x $X --y $1\n', "(line 1 tests $M: read as unset)"),
        (
            'torchrun --nproc_per_node 2 "$@"\n',
            "line 1: the command names no script: torchrun … SCRIPT ARGUMENTS, or only its arguments do: ",
        ),
    ],
)
def test_launch_that_only_arguments_or_variables_reach_is_named(folder: Path, text: str, said: str) -> None:
    (folder / "go.sh").write_text(text)
    done = dstui("import", "go.sh", folder=folder)
    assert done.returncode == 2 and said in done.stderr and "`dstui run --hold -- bash go.sh` reads it" in done.stderr
    if "$@" in text:
        assert load(dstui("import", "--", "bash", "go.sh", "train.py", folder=folder).stdout).job.script == "train.py"


@pytest.mark.parametrize("launcher", ["deepspeed --num_gpus 2", "torchrun --nproc_per_node 2"])
def test_open_meeting_place_is_reported_by_option_and_key(folder: Path, launcher: str) -> None:
    given = f"{launcher} --master_addr $(hostname) --master_port $PORT train.py\n"
    done = dstui("import", "-", folder=folder, given=given)
    assert load(done.stdout).cluster.master_addr is None
    assert "--master_addr ${HOSTNAME} is open: write the address under cluster.master_addr" in done.stderr
    assert "--master_port ${PORT} is open: write the number under cluster.master_port" in done.stderr


def test_nothing_is_said_of_a_path_that_the_plan_does_not_hold(folder: Path) -> None:
    given = 'if [ "$(hostname)" = a ]; then export PATH=/a/bin:$PATH; fi\nexport PATH=$TOOLS/bin:$PATH\ndeepspeed train.py\n'
    done = dstui("import", "-", folder=folder, given=given)
    assert load(done.stdout).job.script == "train.py" and "PATH" not in done.stderr and "TOOLS" not in done.stderr


@pytest.mark.parametrize("text", ["distributed_type: DEEPSPEED\ndeepspeed_config: 3\n", "compute_environment: [\n"])
def test_broken_file_gives_a_message_with_position(folder: Path, text: str) -> None:
    (folder / "bad.yaml").write_text(text)
    done = dstui("import", "bad.yaml", folder=folder)
    assert done.returncode == 2 and "bad.yaml" in done.stderr and "Traceback" not in done.stderr
    with pytest.raises(FileProblem):
        open_document("bad.yaml")


def test_headless_runs_an_accelerate_yaml_and_reports_changes(folder: Path) -> None:
    (folder / "acc.yaml").write_text(HERE["acc.yaml"] + "main_training_function: main,\n")
    done = dstui("--headless", "acc.yaml", "--dry-run", "--", "train.py", "--x", "1", folder=folder)
    assert "commas at the ends of lines" in done.stderr
    assert "ACCELERATE_MIXED_PRECISION=bf16" in done.stdout and "train.py --x 1" in done.stdout
    assert "--no_local_rank" in done.stdout


@pytest.mark.parametrize(("launcher", "given"), [("deepspeed", True), ("torchrun", False), ("accelerate launch", False)])
def test_only_deepspeeds_launcher_gets_no_local_rank(folder: Path, launcher: str, given: bool) -> None:
    (folder / "strict.py").write_text(
        "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--deepspeed')\np.parse_args()\n"
    )
    (folder / "ds.json").write_text("{}")
    made = load(dstui("import", "--", *launcher.split(), "strict.py", "--deepspeed", "ds.json", folder=folder).stdout)
    assert ("--no_local_rank" in made.cluster.launcher_args) is given


@pytest.mark.parametrize("enters", ["", "cd 'a${b}c' && "])
def test_folder_with_a_dollar_in_its_name_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch, enters: str) -> None:
    """Also with a configuration that the text writes, and a script that the Plan looks for there."""
    inner = folder / "a${b}c"
    inner.mkdir()
    (inner / "train.py").write_text("import deepspeed\ndeepspeed.add_config_arguments(parser)\n")
    (inner / "two.json").write_text('{"train_batch_size": 2}')
    monkeypatch.chdir(folder if enters else inner)
    Path("run.sh").write_text(f"{enters}deepspeed train.py --deepspeed_config two.json\n")
    plan = open_document("run.sh").plan
    assert plan.get("deepspeed.train_batch_size") == 2 and plan.job.workdir == ("a$${b}c" if enters else ".")
    facts = script_facts_of(plan)
    assert isinstance(facts, ScriptFacts) and facts.integration == "deepspeed"


def test_model_named_only_by_the_script_is_the_launchs_model(folder: Path) -> None:
    loads = "from transformers import AutoModel\nAutoModel.from_pretrained('gpt2')\n"
    (folder / "loads.py").write_text(loads)
    done = dstui("import", "--", "deepspeed", "loads.py", folder=folder)
    assert (made := load(done.stdout).model) is not None and made.source == "gpt2"
    assert "line 2: AutoModel.from_pretrained of loads.py" in done.stderr
    (folder / "go.sh").write_text("deepspeed loads.py --model_name_or_path models/$NAME\n")
    other = load(dstui("import", "go.sh", folder=folder).stdout).model
    assert other is not None and other.source == "models/${NAME}"  # another one: known once the hole is filled


def test_script_is_imported_as_the_first_recipe_for_this_machine(folder: Path) -> None:
    text = "import argparse, torch\nargparse.ArgumentParser().add_argument('--epochs')\nloss.backward()\n"
    (folder / "loop.py").write_text(text)
    done = dstui("import", "loop.py", folder=folder)
    assert done.returncode == 0 and load(done.stdout).job.script == "loop.py"
    assert "line 3: loss.backward()" in done.stderr and "for job.args: --epochs" in done.stderr
    (folder / "plan.yaml").write_text(done.stdout)
    refused = dstui("--headless", "plan.yaml", "--run-dir", "out", folder=folder)
    assert refused.returncode == 2 and "each rank would train alone" in refused.stderr and not (folder / "out").exists()


def test_plain_loop_is_rendered_as_a_diff_and_written_as_a_new_file(folder: Path) -> None:
    (folder / "loop.py").write_text(FLAT)
    (folder / "plan.yaml").write_text("version: 1\njob: {script: loop.py}\ndeepspeed: {train_micro_batch_size_per_gpu: 4}\n")
    shown = dstui("render", "plan.yaml", "--only", "code", folder=folder).stdout
    assert shown.startswith("--- loop.py\n+++ loop_deepspeed.py\n") and "\n-        loss.backward()\n" in shown
    dstui("render", "plan.yaml", "--only", "code", "-o", ".", folder=folder)
    assert (folder / "loop.py").read_text() == FLAT
    written = (folder / "loop_deepspeed.py").read_text().splitlines()
    assert {line[1:] for line in shown.splitlines()[2:] if line[0] == "+"} <= set(written) and "        model.step()" in written
