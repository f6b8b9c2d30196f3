"""The commands docs, schema and completion, as a user calls them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dstui.check.accelerate import RULES as ACCELERATE_RULES
from dstui.check.rules.all_rules import RULES
from dstui.cli import main
from dstui.commands import COMMANDS
from dstui.commands.docs import index, topics
from tests.source import FILES, text_of


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def dstui(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Return a function that runs `dstui WORDS` in this process, which is faster than a new interpreter."""

    def run(*words: str) -> Result:
        code = main(words)
        return Result(code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("zero_optimization.stage", ("deepspeed.zero_optimization.stage", "0, 1, 2, 3", "accelerate's --zero_stage, else 2", "https://")),
        ("deepspeed.bf16.enabled", ("deepspeed.bf16.enabled", "--mixed_precision bf16")),
        ("cluster.hosts", ("cluster.hosts  (Plan)", "Host -> slots")),
        ("stage3_prefetch_bucket_size", ("deepspeed.zero_optimization.stage3_prefetch_bucket_size", "ZeRO stage 3")),
        ("zero3_init_flag", ("deepspeed_config.zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT")),
        ("mixed_precision", ("not      beside deepspeed_config_file",)),
        ("ds125", ("DS125  (error)", "does not divide the ranks")),
        ("AC001", ("deepspeed_config_file",)),
        (
            "batch-assert",
            (
                "BATCH-ASSERT  (failure)",
                "world size of 1",
                "`Check batch related",
                "fix ",
                "deepspeed/runtime/config.py, _batch_assertion",
            ),
        ),
        ("zero_optimization.stage", ("page     https://www.deepspeed.ai/tutorials/zero/", "paper    https://arxiv.org/abs/1910.02054")),
        ("zero_optimization.offload_optimizer.device", ("arxiv.org/abs/2101.06840", "arxiv.org/abs/2104.07857")),
        ("zero_hpz_partition_size", ("arxiv.org/abs/2306.10209", "https://github.com/deepspeedai/DeepSpeed/blob/")),
        ("reduce_bucket_size", ("more is faster, fewer take less memory", "hidden_size²")),
        ("stage3_prefetch_bucket_size", ("more is faster, fewer take less memory",)),
        ("zero_stage", ("0 nothing, 1 optimizer states", "https://huggingface.co/docs/accelerate/usage_guides/deepspeed")),
        ("offload_optimizer_device", ("none, cpu, nvme", "not      beside deepspeed_config_file")),
        ("offload_param_device", ("stage 3 only",)),
        ("zero3_save_16bit_model", ("Gather whole 16-bit weights",)),
        ("deepspeed_moe_layer_cls_names", ("with commas and no blanks",)),
        ("NCCL_SOCKET_IFNAME", ("Variables of NCCL", "=eth0")),
        ("nccl_timeout", ("No variable of NCCL", "DEEPSPEED_TIMEOUT")),
        (".deepspeed_env", ("one NAME=VALUE a line", "cluster.env")),
        ("init_distributed", ("deepspeed.init_distributed",)),
        ("ULYSSES", ("ALST", "parallelism_config_sp_size")),
        ("PARALLELISM_CONFIG_SP_SIZE", ("parallelism_config_sp_size",)),
        ("ACCELERATE_DEEPSPEED_ZERO3_INIT", ("deepspeed_config.zero3_init_flag",)),
        ("tokens/s", ("(a metric)", "tokens per second")),
        ("models", ("models  (Plan)", "Several models in one run", "models.NAME.role")),
        ("cluster", ("cluster  (Plan)", "cluster.hosts")),
        ("cluster.slurm", ("cluster.slurm  (Plan)", "cluster.slurm.partition")),
        ("AC027", ("accelerate",)),
        ("KR001", ("as of ", "transformers/issues/47254")),
        ("GATHER16", ("GATHER16-RAISED", "zero3_save_16bit_model", "deepspeed/runtime/engine.py")),
    ],
)
def test_docs_explains_a_key_or_a_code(dstui: Callable[..., Result], key: str, parts: tuple[str, ...]) -> None:
    done = dstui("docs", key)
    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in parts), done.stdout


def test_docs_suggests_similar_names_and_lists_all(dstui: Callable[..., Result]) -> None:
    done = dstui("docs", "reduce_buket_size")
    assert done.returncode == 1 and "reduce_bucket_size" in done.stderr
    assert "TiledMLP" in dstui("docs", "TiledMPL").stderr


def test_docs_without_a_key_is_an_index_with_titles(dstui: Callable[..., Result]) -> None:
    lines = dstui("docs").stdout.splitlines()
    entries = [line.split(maxsplit=1) for line in lines if line.startswith("  ")]
    assert {name for name, *_ in entries} == {name for _, group in index() for name in group}
    assert {"zero_optimization.stage", "job.script", "DS001", "NCCL_DEBUG", "models", "OOM-GPU"} <= {name for name, *_ in entries}
    assert [entry for entry in entries if len(entry) == 1] == [], "each has a title"
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert headings == [heading for heading, _ in index()]


def test_every_finding_code_has_a_page(dstui: Callable[..., Result]) -> None:
    written = {code for path in FILES for code in re.findall(r'"((?:AC|CK|DS|FC|KR|MC|OP|PL|TR)\d{3})"', text_of(path))}
    known = {name for _, group in index() for name in group}
    assert "AC027" in written and written - known == set()


def test_finding_code_has_one_meaning() -> None:
    """Findings outside of the rules must not reuse the code of a rule."""
    outside = {code for path in FILES for code in re.findall(r'Finding\(\s*"(\w{5})"', text_of(path))}
    assert "PL050" in outside and outside & (RULES.keys() | ACCELERATE_RULES.keys()) == set()


def text_of_package(source: str) -> str | None:
    """Return the text of a file of an installed package without importing it; None if the package is missing."""
    package, _, rest = source.partition("/")
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations)), rest).read_text()


@pytest.mark.parametrize("package", ["deepspeed", "torch", "accelerate", "transformers"])
def test_topics_occur_in_the_programs_they_describe(package: str) -> None:
    mine = [topic for topic in topics() if topic.source.startswith(f"{package}/")]
    assert mine
    for topic in mine:
        file, _, words = topic.source.partition(":")
        text = text_of_package(file)
        if text is None:
            pytest.skip(f"{package} is not installed here")
        assert (words or topic.name) in text, topic.name


def test_nccl_variables_occur_in_its_library() -> None:
    library = next((path for root in map(Path, sys.path) for path in root.glob("nvidia/nccl/lib/libnccl.so*")), None)
    if library is None:
        pytest.skip("NCCL's library is not installed here: it comes with torch for CUDA")
    data = library.read_bytes()
    mine = [topic.name for topic in topics() if topic.source == "nccl"]
    assert [name for name in mine if name.removeprefix("NCCL_").encode() not in data] == []


def test_topics_name_existing_pages(dstui: Callable[..., Result]) -> None:
    for name in {name for topic in topics() for name in topic.see}:
        assert dstui("docs", name).returncode == 0, name


def test_schema_is_printed_or_written_with_an_editor_comment(
    dstui: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = json.loads(dstui("schema").stdout)
    assert printed["properties"]["deepspeed"]["properties"]["zero_optimization"]
    done = dstui("schema", "-o", "plan.schema.json", "--deepspeed-version", "0.16.9")
    assert "$schema=plan.schema.json" in done.stdout and json.loads((tmp_path / "plan.schema.json").read_text())
    assert dstui("schema", "-o", "plan.schema.json").returncode == 2, "other content is not overwritten unasked"
    assert dstui("schema", "--deepspeed-version", "new").returncode == 2


COMPLETE = "source ./dstui.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _dstui; echo ${{COMPREPLY[@]}}"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("dstui re", {"render"}),
        ("dstui zero3-", {"zero3-offload"}),
        ("dstui check --stri", {"--strict"}),
        ("dstui check --oracle ''", {"parse", "init"}),
        ("dstui render --only a", {"accelerate"}),
        ("dstui plan.yaml --dry", {"--dry-run"}),
        ("dstui completion ''", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_commands_options_and_choices(dstui: Callable[..., Result], words: str, found: set[str], tmp_path: Path) -> None:
    bash = shutil.which("bash") or pytest.skip("no bash here")
    (tmp_path / "dstui.bash").write_text(dstui("completion", "bash").stdout)
    done = subprocess.run([bash, "-c", COMPLETE.format(words=words)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_every_command(dstui: Callable[..., Result], shell: str) -> None:
    script = dstui("completion", shell).stdout
    assert all(name in script for name in COMMANDS)
    if program := shutil.which(shell):
        subprocess.run([program, "--no-execute", "-c", script] if shell == "fish" else [program, "-nc", script], check=True)


def test_completion_is_installed_by_one_command(dstui: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert dstui("completion", "--install").returncode == 0
    assert (tmp_path / ".config/fish/completions/dstui.fish").read_text() == dstui("completion", "fish").stdout
    (tmp_path / ".zshrc").write_text("alias ll='ls -l'")
    assert "added" in dstui("completion", "zsh", "--install").stdout
    assert "added" not in dstui("completion", "zsh", "--install").stdout, "a second time changes nothing"
    script = tmp_path / ".local/share/dstui/completion.zsh"
    assert (tmp_path / ".zshrc").read_text() == f"alias ll='ls -l'\nsource {script}\n"
    assert dstui("completion", "bash", "--install").returncode == 0
    assert "_dstui dstui" in (tmp_path / ".local/share/bash-completion/completions/dstui").read_text()
    monkeypatch.setenv("SHELL", "/bin/ksh")
    assert dstui("completion").returncode == 2
    (tmp_path / ".config/fish/completions/dstui.fish").unlink()
    (tmp_path / ".config/fish/completions/dstui.fish").mkdir()
    assert "is a folder" in dstui("completion", "fish", "--install").stderr
