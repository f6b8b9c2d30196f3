"""What prevents a launch gives a message before anything is written, and no partial files stay."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from dstui.jobs.control.start import LaunchError, start
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import find, folders, runs
from dstui.machine.recorded import read_machine
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.target import Target
from tests.job_json import write_status_json


def launch(base: Path, *, run_dir: Path | None = None, job: str = "script: train.py", cluster: str = "hosts: {localhost: 1}") -> JobFolder:
    text = f"version: 1\nname: a run/1\njob: {{{job}}}\ncluster: {{{cluster}}}\ndeepspeed: {{train_batch_size: 2}}\n"
    return start(Target(load(text, "plan.yaml", str(base)), Machine.unprobed()), run_dir=run_dir)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a training script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path


def launch_error(base: Path, **how: object) -> str:
    """Return the message, and assert that the folder has no new files."""
    before = sorted(base.rglob("*"))
    with pytest.raises(LaunchError) as caught:
        launch(base, **how)  # type: ignore[arg-type]
    assert sorted(base.rglob("*")) == before
    return str(caught.value)


def test_missing_script_is_named_with_its_full_path(place: Path) -> None:
    assert launch_error(place, job="script: sub/nothere.py").startswith(f"job.script: there is no file {place}/sub/nothere.py")


def test_recorded_machine_cannot_be_launched_on(place: Path) -> None:
    snapshot = place / "dgx.json"
    snapshot.write_text(json.dumps(Machine.unprobed().to_json()))
    plan = load("version: 1\njob: {script: train.py}\ndeepspeed: {train_batch_size: 2}\n", "plan.yaml", str(place))
    with pytest.raises(LaunchError, match=r"the given one is recorded \(the snapshot dgx.json\): leave out --machine"):
        start(Target(plan, read_machine(snapshot)))
    assert sorted(path.name for path in place.iterdir()) == ["dgx.json", "train.py"]


def test_missing_workdir_is_named(place: Path) -> None:
    assert launch_error(place, job="script: train.py, workdir: nowhere") == f"job.workdir: there is no folder {place}/nowhere"


def test_missing_interpreter_is_named(place: Path) -> None:
    assert launch_error(place, job="script: train.py, python: ./nopython") == f"job.python: there is no interpreter {place}/nopython"


@pytest.mark.usefixtures("full_deepspeed")  # any interpreter finds what is on PYTHONPATH
def test_interpreter_without_deepspeed_is_detected_before_the_launch(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    bare = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(bare, with_pip=False)
    assert f"job.python: {bare}/bin/python has no deepspeed: install it there" in launch_error(
        place, job=f'script: train.py, python: "{bare}/bin/python"'
    )


def test_file_that_is_no_interpreter_is_reported(place: Path) -> None:
    assert "is not a working Python" in launch_error(place, job="script: train.py, python: /bin/false")


def test_hosts_started_by_hand_are_refused_with_each_hosts_command(place: Path) -> None:
    refused = launch_error(place, cluster="hosts: {worker-1: 8, worker-2: 8}, launcher: nossh")
    assert "# on worker-1\n" in refused and "# on worker-2\n" in refused and "--node_rank 1" in refused


def test_nonempty_folder_is_refused(place: Path) -> None:
    run_dir = place / "run"
    run_dir.mkdir()
    (run_dir / "precious").touch()
    assert launch_error(place, run_dir=run_dir).startswith(f"{run_dir} is not empty")


def test_file_in_place_of_the_folder_is_refused(place: Path) -> None:
    assert launch_error(place, run_dir=place / "train.py").startswith(f"{place}/train.py is a file")
    (place / "dstui_runs").touch()
    assert "a part of this path is a file" in launch_error(place)


def test_unwritable_place_is_named(place: Path) -> None:
    said = launch_error(place, run_dir=Path("/proc/dstui-run"))
    assert said.startswith("Cannot make the job folder /proc/dstui-run:") and "--run-dir" in said


IN_A_NAMESPACE = """
mount -t tmpfs -o {options} none "$1" && cp "$1".py "$1"/train.py 2>/dev/null; cd "$2" && exec "$3" -c "$4" "$1"
"""
TRY = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.jobs.test_start import launch
from dstui.jobs.control.start import LaunchError
place = Path(sys.argv[1])
before = sorted(place.rglob("*"))
try:
    launch(Path.cwd(), run_dir=place / "run")
except LaunchError as error:
    print(error)
assert sorted(place.rglob("*")) == before, sorted(place.rglob("*"))
"""


@pytest.mark.parametrize(("options", "said"), [("size=4k", "disk is full"), ("ro", "read-only")])
def test_full_or_read_only_disk_is_reported_and_leaves_no_partial_files(place: Path, options: str, said: str) -> None:
    probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False) if shutil.which("unshare") else None
    if probe is None or probe.returncode:
        pytest.skip("no mount namespaces for this user")
    disk = place / "disk"
    disk.mkdir()
    script = IN_A_NAMESPACE.format(options=options)
    words = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        script,
        "sh",
        str(disk),
        str(place),
        sys.executable,
        TRY.format(root=str(Path(__file__).parents[2])),
    ]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert said in answer.stdout and str(disk) in answer.stdout


def test_job_folders_are_named_by_run_and_time_and_never_shared(place: Path) -> None:
    (place / "train.py").write_text("import time\ntime.sleep(1000)\n")
    first, second, third = (launch(place) for _ in range(3))
    assert first.path.parent == place / "dstui_runs"
    assert first.name.startswith("a-run-1-20")
    assert len({first, second, third}) == 3
    for name in ("plan.yaml", "ds_config.json", "launch.sh", "status.json", "events.jsonl"):
        assert (first.path / name).is_file()
    assert [folder.path for folder in folders() if folder.path.is_relative_to(place)] == [first.path, second.path, third.path]
    assert find() == third
    assert find(second.name) == second == find(str(second.path))
    for folder in (first, second, third):
        assert stop(folder).left == []
    assert [status.state for folder, status in runs() if folder == first] == ["stopped"]


def test_name_that_matches_no_run_or_several_is_reported(place: Path) -> None:
    for name in ("alpha-1", "alpha-2", "beta-1"):
        folder = JobFolder(place / "dstui_runs" / name)
        folder.path.mkdir(parents=True)
        write_status_json(folder, {"state": "succeeded", "started": f"2026-01-0{1 + len(name) % 2}"})
    assert find("beta").name == "beta-1"
    with pytest.raises(LookupError, match="alpha may be alpha-1 or alpha-2"):
        find("alpha")
    with pytest.raises(LookupError, match="no run called gamma"):
        find("gamma")
