"""The command line's contract: imports, refused arguments and exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import dstui

ROOT = Path(__file__).parent.parent


def imported(*args: str) -> set[str]:
    """Return the top-level modules that a command imports."""
    code = f"import sys\nfrom dstui.cli import main\ntry: main({list(args)!r})\nexcept SystemExit: pass\nprint('MODULES', *sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return {name.partition(".")[0] for name in out.rpartition("MODULES")[2].split()}


HEAVY = {"torch", "deepspeed", "accelerate", "transformers", "pydantic"}


@pytest.mark.parametrize("args", [("--version",), ("--help",)])
def test_version_and_help_import_nothing_but_argparse(args: tuple[str, ...]) -> None:
    assert not imported(*args) & (HEAVY | {"textual", "rich", "yaml", "psutil", "asyncio"})


def test_headless_imports_neither_textual_nor_torch() -> None:
    assert not imported("--headless", "quickstart", "--dry-run") & (HEAVY | {"textual", "rich"})


def test_tui_does_not_import_torch() -> None:
    out = subprocess.run(
        [sys.executable, "-c", "import sys, dstui.tui.app; print(*sys.modules)"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert not {name.partition(".")[0] for name in out.split()} & HEAVY


def test_version_is_the_package_version() -> None:
    from dstui import __version__

    done = dstui("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"dstui {__version__}")


BAD_FILES = {
    "tab.yaml": (b"version: 1\njob:\n\tscript: a.py\n", "tab.yaml:3:1: a tab where YAML wants spaces"),
    "twice.yaml": (b"version: 1\njob: {script: a}\nname: x\nname: y\n", "the key 'name' is given a second time"),
    "typo.yaml": (b"version: 1\njob: {scrip: a}\n", "did you mean 'script'?"),
    "binary.yaml": (b"\x89PNG\0\0", "is a binary file"),
    "empty.yaml": (b"", "the file is empty"),
}


@pytest.mark.parametrize("name", [*BAD_FILES, "missing.yaml", "."])
@pytest.mark.parametrize("command", [("--headless",), ("render",), ("check",)])
def test_unusable_file_gives_a_message_and_status_2(name: str, command: tuple[str, ...], tmp_path: Path) -> None:
    content, sentence = BAD_FILES.get(name, (b"", "no such file" if name == "missing.yaml" else "is a folder"))
    if name in BAD_FILES:
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.iterdir())
    done = dstui(*command, name, cwd=tmp_path)
    judged = command == ("check",) and name == "typo.yaml"  # the file is readable: its content is wrong, which is a diagnostic
    assert done.returncode == (1 if judged else 2)
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_tui_without_a_terminal_is_refused_with_alternatives() -> None:
    done = dstui("quickstart")
    assert done.returncode == 2
    assert "use dstui --headless PLAN" in done.stderr
    assert dstui("nosuch.yaml").stderr == "dstui: nosuch.yaml: no such file or folder\n"


def test_dry_run_prints_every_file_and_writes_none(tmp_path: Path) -> None:
    done = dstui("--headless", "quickstart", "--dry-run", "--set", "deepspeed.zero_optimization.stage=3", cwd=tmp_path)
    assert done.returncode == 0
    assert '"stage": 3' in done.stdout
    assert "deepspeed.launcher.runner" in done.stdout
    events = [json.loads(line) for line in dstui("--headless", "quickstart", "--dry-run", "--json", cwd=tmp_path).stdout.splitlines()]
    assert {event["event"] for event in events} == {"file"}
    assert json.loads(next(event["text"] for event in events if event["name"] == "ds_config.json"))["zero_optimization"]
    assert list(tmp_path.iterdir()) == []


def test_command_of_a_run_goes_after_two_dashes() -> None:
    assert "dstui run -- ls 'a b'" in dstui("run", "ls", "a b").stderr


def test_options_of_headless_without_it_are_refused() -> None:
    done = dstui("quickstart", "--dry-run")
    assert (done.returncode, done.stderr.strip()) == (2, "dstui: --dry-run needs --headless")


def test_options_of_a_command_may_stand_before_it(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("version: 1\njob: {script: train.py}\ncluster: {num_gpus: 2}\n")
    after = dstui("explain", "plan.yaml", "--set", "cluster.num_gpus=4", cwd=tmp_path)
    before = dstui("--set", "cluster.num_gpus=4", "explain", "plan.yaml", cwd=tmp_path)
    assert before.returncode == after.returncode == 0 and before.stdout == after.stdout
    assert "unrecognized arguments: --headless" in dstui("--headless", "check", "plan.yaml", cwd=tmp_path).stderr
    assert dstui("--machine", "check", "plan.yaml", cwd=tmp_path).stderr.startswith("dstui: "), "check is the value of --machine"


def test_setting_is_named_by_its_option_and_a_hole_once(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("deepspeed t.py --n $N\n")
    unknown = dstui("--headless", "run.sh", "--dry-run", "--set", "cluster.foo=3", cwd=tmp_path)
    assert unknown.stderr.startswith("dstui: --set cluster.foo=3: cluster.foo: unknown key")
    ignored = dstui("--headless", "quickstart", "--dry-run", "--set", "deepspeed.foo=3", cwd=tmp_path).stderr
    assert "--set: warning DS011 deepspeed.foo" in ignored
    assert dstui("--headless", "run.sh", "--dry-run", cwd=tmp_path).stderr.count("${N} is open") == 1


def test_rendered_files_are_written_once_and_replaced_only_with_force(tmp_path: Path) -> None:
    assert dstui("render", "quickstart", "-o", str(tmp_path)).returncode == 0
    names = {"ds_config.json", "launch.sh", ".deepspeed_env"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "launch.sh").stat().st_mode & 0o100
    assert not (tmp_path / "ds_config.json").stat().st_mode & 0o100
    assert "unchanged" in dstui("render", "quickstart", "-o", str(tmp_path)).stdout
    other = ("render", "quickstart", "-o", str(tmp_path), "--set", "deepspeed.zero_optimization.stage=1")
    refused = dstui(*other)
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    assert dstui(*other, "--force").returncode == 0
    assert '"stage": 1' in (tmp_path / "ds_config.json").read_text()


def test_rendered_files_with_environment_values_are_private(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    render = (
        "render",
        "quickstart",
        "-o",
        str(tmp_path),
        "--set",
        "cluster.env.HF_TOKEN=hf_abcdefghijklmnop",
        "--set",
        "cluster.num_gpus=2",
    )
    expected = {".deepspeed_env": 0o600, "launch.sh": 0o700, "job.sbatch": 0o700, "job.yaml": 0o600}
    for only in ("env", "command", "sbatch", "k8s"):
        assert dstui(*render, "--only", only).returncode == 0
    assert modes() == expected
    for name in expected:  # written by an older dstui
        (tmp_path / name).chmod(0o755)
    (tmp_path / "launch.sh").write_text("old")
    for only in ("env", "command", "sbatch", "k8s"):
        assert dstui(*render, "--only", only, "--force").returncode == 0
    assert modes() == dict.fromkeys(expected, 448)


def test_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        f"{sys.executable} -m dstui render quickstart | head -1", shell=True, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


def test_bare_configuration_runs_the_script_after_two_dashes(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"reduce_bucket_size": 5e8}}')
    done = dstui("--headless", "ds.json", "--dry-run", "--", "train.py", "--deepspeed_config", "ds.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"reduce_bucket_size": 5e8' in done.stdout
    assert "train.py --deepspeed_config ./ds_config.json" in done.stdout
    refused = dstui("--headless", "ds.json", "--dry-run", cwd=tmp_path)
    assert (refused.returncode, "no script is named" in refused.stderr) == (2, True)


@pytest.mark.parametrize("words", [("render", "quickstart"), ("--headless", "quickstart", "--dry-run"), ("new", "zero2")], ids=" ".join)
def test_current_folder_that_was_removed_is_reported(words: tuple[str, ...], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    inside = "import os, sys; from dstui.cli import main; os.rmdir(os.getcwd()); sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", inside, *words],
        cwd=gone,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dstui: the current folder does not exist any more: change to another one\n"


def test_home_that_is_no_folder_is_reported_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = dstui("completion", "bash", "--install", cwd=tmp_path, env={"HOME": str(file), "XDG_DATA_HOME": ""})
    assert (done.returncode, done.stderr) == (
        2,
        f"dstui: {file}/.local/share/bash-completion/completions: a part of this path is a file, not a folder\n",
    )
