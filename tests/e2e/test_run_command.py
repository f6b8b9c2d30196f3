"""`dstui run -- COMMAND` runs a command whose launches become jobs; `--hold` makes Plans of them instead."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.plan import load
from tests.adopt.shell_launches import needs_bash
from tests.waiting import wait_for

pytestmark = [pytest.mark.launcher, needs_bash]

SCRIPT = """\
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:], os.environ.get("X_A"), os.getcwd(), flush=True)
sys.exit(3 if "fail" in sys.argv and os.environ["RANK"] == "1" else 0)
"""
GO = """\
export X_A="from the script"
N=$(echo 2)
echo before
deepspeed --num_gpus=$N train.py --a "b c" ${1:-none}
echo "status $?"
export PATH=/usr/bin:/bin:$PATH
deepspeed --num_gpus 2 train.py fail
echo "status $?"
exit 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("deepspeed", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("there is no deepspeed program beside this interpreter: pip install deepspeed")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "go.sh").write_text(GO)
    return tmp_path


def start(folder: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    command = [sys.executable, "-m", "dstui", "run", *words]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def test_script_runs_unchanged_and_each_launch_is_a_job_with_a_plan(folder: Path) -> None:
    code, out, err = run(folder, "--", "bash", "go.sh")
    lines = [line for line in out.splitlines() if line.startswith(("rank", "before", "status"))]
    said = f"['--local_rank=0', '--a', 'b c', 'none'] from the script {folder}"
    assert code == 7 and lines[0] == "before" and f"rank 0 of 2 {said}" in lines
    assert [line for line in lines if line.startswith("status")] == ["status 0", "status 3"]
    first, second = sorted(folder.glob("dstui_runs/*/plan.yaml"))
    assert load(first.read_text()).job.args == ("--a", "b c", "none") and "rank 1" in err
    again = subprocess.run(
        [sys.executable, "-m", "dstui", "--headless", str(first), "--run-dir", "again"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert again.returncode == 0 and said in again.stdout
    assert (second.parent / "logs" / "rank_1.log").exists()


def test_held_launches_become_plans_and_the_rest_of_the_script_runs(folder: Path) -> None:
    code, out, err = run(folder, "--hold", "-o", "held.yaml", "--", "bash", "go.sh", "two")
    assert (code, out) == (7, "before\nstatus 0\nstatus 0\n") and "everything in the command runs" in err
    plan = load((folder / "held.yaml").read_text())
    assert plan.job.args == ("--a", "b c", "two") and plan.cluster.env["X_A"] == "from the script"
    assert load((folder / "held-2.yaml").read_text()).job.args == ("fail",)
    assert not (folder / "dstui_runs").exists()
    text = "begin() { export Y=8; }; export -f begin; srun -N 2 --ntasks 2 bash -c 'begin; deepspeed --num_gpus 2 train.py --node $X$Y'"
    code, _, err = run(folder, "--hold", "-o", "third.yaml", "--", "bash", "-c", f"export X=7 L=$'a\\nb'; {text}")
    assert code == 0 and "srun is not started" in err and "L: not in the Plan" in err
    assert load((folder / "third.yaml").read_text()).job.args == ("--node", "78")
    (folder / "on_host.sh").write_text("deepspeed --num_gpus 2 train.py --from $1 --deepspeed=ds.json\n")
    (folder / "ds.json").write_text('{"train_batch_size": 8}')
    code, _, err = run(folder, "--hold", "-o", "fourth.yaml", "--", "srun", "on_host.sh", "a")
    fourth = (folder / "fourth.yaml").read_text()
    assert code == 0 and load(fourth).job.args == ("--from", "a", "--deepspeed=ds.json"), err
    assert "edits take effect once {ds_config}" in fourth


def test_launches_at_the_same_time_are_held_one_by_one(folder: Path) -> None:
    text = "for n in 1 2 3 4 5 6; do deepspeed --num_gpus 2 train.py --number $n & done; wait"
    code, _, err = run(folder, "--hold", "-o", "held.yaml", "--", "bash", "-c", text)
    plans = [load((folder / name).read_text()) for name in ("held.yaml", *(f"held-{n}.yaml" for n in range(2, 7)))]
    assert code == 0 and sorted(plan.job.args[1] for plan in plans) == ["1", "2", "3", "4", "5", "6"], err


def test_launch_in_the_background_goes_on_after_its_script(folder: Path) -> None:
    code, _, err = run(folder, "--hold", "-o", "held.yaml", "--", "bash", "-c", "deepspeed --num_gpus 2 train.py > log 2>&1 & exit 3")
    assert code == 3 and "their launches are still caught" in err
    wait_for((folder / "held.yaml").exists, 30)


def test_folders_of_killed_runs_are_removed_a_day_later(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("dstui-run-old", "dstui-run-new"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "dstui-run-old", (0, 0))
    assert run(folder, "--", "true")[0] == 0
    assert [path.name for path in tmp_path.glob("dstui-run-*")] == ["dstui-run-new"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["no-such-program"], 127, "no-such-program: command not found"),
        (["bash", "-c", "exit 5"], 5, "no launch was caught"),
        (["bash", "-c", "kill -9 $$"], 137, ""),
        (["bash", "-c", "PATH=/nowhere; unset -f deepspeed; deepspeed t.py"], 127, "deepspeed: "),
        (["bash", "-c", "deepspeed --num_gpus 2"], 2, "runs unobserved"),
    ],
)
def test_other_commands_keep_their_status_and_output(folder: Path, words: list[str], code: int, said: str) -> None:
    done, _, err = run(folder, "--", *words)
    assert (done, said in err) == (code, True)
    assert done < 126 or "no launch was caught" not in err


def test_signal_reaches_the_command(folder: Path) -> None:
    text = "trap 'echo got it; exit 9' TERM; echo up; while :; do sleep 0.1; done"
    process = start(folder, "--", "bash", "-c", text, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "got it\n" and process.returncode == 9


def test_ctrl_c_ends_the_launch_and_its_script(folder: Path) -> None:
    (folder / "train.py").write_text("import os, time\nopen('up' + os.environ['RANK'], 'w').close()\ntime.sleep(600)\n")
    process = start(folder, "--", "bash", "-c", "deepspeed --num_gpus 2 train.py; echo goes on", start_new_session=True)
    wait_for(lambda: (folder / "up0").exists() and (folder / "up1").exists())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, "goes on" in out, "Traceback" in err) == (130, False, False), "bash ends, as with the launcher itself"
    (status,) = folder.glob("dstui_runs/*/status.json")
    assert '"state": "stopped"' in status.read_text()


def test_launch_killed_with_dstui_leaves_nothing(folder: Path) -> None:
    (folder / "train.py").write_text("import os, time\nopen('up' + os.environ['RANK'], 'w').close()\ntime.sleep(600)\n")
    process = start(folder, "--", "bash", "-c", "deepspeed --num_gpus 2 train.py", start_new_session=True)
    wait_for(lambda: (folder / "up0").exists() and (folder / "up1").exists())
    os.killpg(process.pid, signal.SIGKILL)
    (status,) = folder.glob("dstui_runs/*/status.json")
    wait_for(lambda: '"state": "running"' not in status.read_text())
    process.communicate(timeout=60)


def test_launch_forbidden_by_the_site_is_not_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = "version: 1\ncontact: '#gpu-help'\nlocked:\n"
    locks += "  deepspeed.bf16.enabled: {value: true, reason: all runs compare}\n"
    folder.chmod(0o755)
    (folder / "site.yaml").write_text(locks)
    (folder / "site.yaml").chmod(0o644)
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    monkeypatch.setenv("DSTUI_SITE", str(folder / "site.yaml"))
    code, out, err = run(folder, "--no-check", "--", "deepspeed", "--num_gpus=2", "train.py", "--deepspeed_config", "ds.json")
    assert code == 1 and "rank" not in out and not (folder / "dstui_runs").exists()
    assert "deepspeed.bf16.enabled: it is not set, but this site allows only true: all runs compare" in err and "Ask #gpu-help" in err
    code, out, err = run(folder, "--", "deepspeed", "--num_gpus=2", "train.py")  # what the script does by itself is unknown
    assert code == 0 and out.count("of 2 [") == 2, err
