"""Step 7: hosts, the grid of their slots and the filters that it edits, the launcher, and what reaches the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.plan import launchers, load
from dstui.render.artifacts import kubernetes_artifact
from dstui.render.target import Target
from dstui.tui.forms.fields import NotThat
from dstui.tui.forms.slot_grid import EVERY, picked, used_of
from dstui.tui.session.messages import PathChosen
from dstui.tui.session.state import UNSET, State
from tests import recorded_slurm
from tests.machines import NO_GPU
from tests.tui.conftest import PLAN, Open, keys, screen, store, text_of, until, value

TWO = PLAN + "cluster:\n  hosts: {h1: 4, h2: 4}\n"
SIXTEEN = PLAN + "cluster:\n  hosts: {" + ", ".join(f"worker-{n}: 8" for n in range(16)) + "}\n"


def state(cluster: str) -> State:
    return State(load(f"version: 1\njob: {{script: t.py}}\ncluster: {cluster}\n", "plan.yaml", "/"))


def written(cluster: str, host: str, column: int) -> dict[str, object]:
    """Return the filters after a mark is toggled, without keys for unset ones."""
    return {path.removeprefix("cluster."): text for path, text in picked(state(cluster), host, column) if text is not UNSET}


@pytest.mark.parametrize(
    ("cluster", "host", "column", "wanted"),
    [
        ("{hosts: {h1: 4, h2: 4}}", "h2", 4, {"exclude": "h2:3"}),
        ("{hosts: {h1: 4, h2: 4}}", "h2", 0, {"include": "h1"}),
        ("{hosts: {h1: 4, h2: 4}}", EVERY, 1, {"exclude": "h1:0@h2:0"}),
        ("{hosts: {h1: 4, h2: 4}, include: h1}", "h2", 1, {"include": "h1@h2:0"}),
        ("{hosts: {h1: 4, h2: 4}, exclude: 'h2:0'}", "h2", 1, {}),
        ("{hosts: {h1: 4, h2: 4}, num_nodes: 1}", "h2", 0, {}),
        ("{hosts: {h1: 4, h2: 2}, num_gpus: 1}", "h1", 2, {"include": "h1:0,1@h2:0"}),
        ("{hosts: {h1: 4, h2: 4}, include: nobody}", "h1", 1, {"include": "h1:0"}),
    ],
)
def test_toggling_a_mark_writes_deepspeeds_filter_syntax(cluster: str, host: str, column: int, wanted: dict[str, str]) -> None:
    assert written(cluster, host, column) == wanted


def test_last_slot_cannot_be_unmarked() -> None:
    with pytest.raises(NotThat, match="no slot is chosen"):
        picked(state("{hosts: {h1: 4, h2: 4}, include: 'h1:2'}"), "h1", 3)


def test_no_slot_is_marked_under_an_invalid_filter() -> None:
    assert used_of(state("{hosts: {h1: 4}, include: h2}")) == {}
    assert used_of(state("{hosts: {h1: 2, h2: 2}, exclude: h1}")) == {"h2": frozenset({0, 1})}


async def test_arrows_move_over_marks_and_each_space_is_one_undo_step(open_app: Open) -> None:
    async with open_app(TWO) as pilot:
        await pilot.press("7", *["down"] * 6, "right", "right", "space")
        assert value(pilot, "cluster.exclude") == "h2:1"
        assert store(pilot).state.ranks == 7
        await pilot.press("right", "enter")
        assert value(pilot, "cluster.exclude") == "h2:1,2"
        assert "h2 ▪  ■ [·]" not in screen(pilot)
        assert "▪  ■  · [·] ■" in screen(pilot)
        await pilot.press("z")
        assert value(pilot, "cluster.exclude") == "h2:1"
        await pilot.press("z")
        assert store(pilot).state.plan.text == TWO
        await pilot.press("space", "delete")
        assert store(pilot).state.plan.text == TWO


async def test_typed_filter_updates_the_marks_at_every_key(open_app: Open) -> None:
    async with open_app(TWO) as pilot:
        await pilot.press("7", "down", "down", "enter", *"h1")
        assert "4 of 8 on 1 of 2 hosts" in text_of(pilot, "#form-rows")
        assert "h2 · · · · · not used" in " ".join(text_of(pilot, "#form-rows").split())
        await pilot.press(*"@h2:0,2", "enter")
        assert "h2 ▪ ■ · ■ · 4-5" in " ".join(text_of(pilot, "#form-rows").split())
        await pilot.press("enter", "9", "enter", "escape")
        assert "include names slot 29 of h2, which has slots 0 to 3" in " ".join(text_of(pilot, "#form-rows").split())


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_click_on_a_mark_toggles_it_and_beside_it_selects_the_row(open_app: Open, size: tuple[int, int]) -> None:
    async with open_app(TWO, size=size) as pilot:
        await pilot.press("7")
        shown = screen(pilot).splitlines()
        y = next(n for n, line in enumerate(shown) if " h2  " in line)
        x = shown[y].index("■")
        await pilot.click(offset=(x + 6, y))
        assert value(pilot, "cluster.exclude") == "h2:1"
        await pilot.click(offset=(shown[y].index("h2"), y))
        assert value(pilot, "cluster.exclude") == "h2:1"
        await pilot.click(offset=(x, y))
        assert value(pilot, "cluster.exclude") is None


async def test_last_slot_says_that_one_is_needed(open_app: Open) -> None:
    async with open_app(PLAN + "cluster: {hosts: {h1: 1, h2: 1}, include: h2}\n") as pilot:
        await pilot.press("7", *["down"] * 6, "space")
        assert "no slot is chosen: DeepSpeed needs one at least" in text_of(pilot, "#form-rows")
        assert value(pilot, "cluster.include") == "h2"


async def test_hostfile_slots_can_be_marked_and_over_sixteen_hosts_are_collapsed(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("".join(f"worker-{n} slots=8\n" for n in range(64)))
    async with open_app(PLAN + "cluster: {hostfile: hosts.txt}\n") as pilot:
        await pilot.press("7")
        await until(pilot, lambda: "512 of 512 on 64 of 64 hosts ▾" in text_of(pilot, "#form-rows"))
        assert "worker-7" not in text_of(pilot, "#form-rows")
        await pilot.press(*["down"] * 4, "enter")
        await until(pilot, lambda: "worker-63" in text_of(pilot, "#form-rows"))
        await pilot.press("down", *["right"] * 8, "space")
        assert str(value(pilot, "cluster.exclude")).startswith("worker-0:7@worker-1:7@")
        assert store(pilot).state.ranks == 448
        await pilot.press("escape")
        assert "worker-63" not in text_of(pilot, "#form-rows")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_sixteen_hosts_fit_on_the_screen(open_app: Open, size: tuple[int, int]) -> None:
    async with open_app(SIXTEEN, size=size) as pilot:
        await pilot.press("7")
        rows = [line for line in text_of(pilot, "#form-rows").splitlines() if line.startswith("worker-")]
        assert len(rows) == 16
        assert rows[15].split() == ["worker-15", *"■" * 9, "120-127"]
        if size[0] > 80:
            assert store(pilot).state.ranks == 128


async def test_invalid_filter_is_an_error_of_this_step(open_app: Open) -> None:
    async with open_app(PLAN + "cluster: {hosts: {h1: 2, h2: 2}, include: h3}\n") as pilot:
        await pilot.press("7")
        assert "✖ 7 Cluster" in text_of(pilot, "#steps")
        assert "include names the host 'h3', which is not among h1, h2" in " ".join(text_of(pilot, "#form-rows").split())


# Sources of hosts, launchers, environment


async def test_hosts_come_from_hostfile_allocation_and_ssh_configuration(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostfile").write_text("gpu-1 slots=8\ngpu-2 slots=8\n")
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/config").write_text("Include more\nHost box\n  User me\nHost *.internal\n")
    (tmp_path / "home/.ssh/more").write_text("Host far\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[01-03]")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    async with open_app() as pilot:
        await pilot.press("7")
        await until(pilot, lambda: "hostfile, SLURM job 4711, ~/.ssh/config ▾" in text_of(pilot, "#form-rows"))
        await pilot.press("down", "down", "enter")
        shown = text_of(pilot, "#form-rows")
        assert "hostfile 2 hosts x 8: gpu-1, gpu-2" in shown
        assert "SLURM job 4711 3 hosts x 4: n01, n02, n03" in shown
        await pilot.press("down", "enter")
        assert value(pilot, "cluster.hosts") == {"n01": 4, "n02": 4, "n03": 4}
        await pilot.press("z", "enter", "enter")
        assert value(pilot, "cluster.hostfile") == "hostfile"
        await until(pilot, lambda: store(pilot).state.ranks == 16)
        await pilot.press("enter", *["down"] * 3, "enter")
        assert value(pilot, "cluster.hostfile") is None
        assert value(pilot, "cluster.hosts") == {"box": 2}
        await pilot.press("z", "z")
        assert store(pilot).state.plan.text == PLAN


@pytest.mark.parametrize("size", [(120, 60), (60, 16)])
async def test_each_launcher_shows_its_requirements_and_pitfalls(open_app: Open, size: tuple[int, int]) -> None:
    async with open_app(TWO, size=size) as pilot:
        await pilot.press("7")
        for known in (launcher for launcher in launchers.ALL if launcher.name != "local"):
            store(pilot).edit(("cluster.launcher", known.name))
            said = " ".join(text_of(pilot, "#form-rows").split())
            for sentence in (known.needs, known.rank_fails, known.ctrl_c, *known.traps):
                assert sentence in said, known.name


@pytest.mark.parametrize(
    ("launcher", "reach"),
    [
        ("ssh", {"OMP_NUM_THREADS": "yes", "HF_HOME": "no", "MLFLOW_URI": "no"}),
        ("pdsh", {"OMP_NUM_THREADS": "yes", "HF_HOME": "no", "MLFLOW_URI": "yes"}),
        ("mpich", {"OMP_NUM_THREADS": "yes", "HF_HOME": "yes", "MLFLOW_URI": "yes"}),
    ],
)
async def test_each_variable_says_whether_it_reaches_the_ranks_and_hides_its_value(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, launcher: str, reach: dict[str, str]
) -> None:
    for name in ("HF_HOME", "MLFLOW_URI"):
        monkeypatch.setenv(name, "a-secret")
    async with open_app(TWO + f"  launcher: {launcher}\n  env: {{OMP_NUM_THREADS: 1}}\n") as pilot:
        await pilot.press("7")
        rows = {
            line.split()[0]: line.split()[2]
            for line in text_of(pilot, "#form-rows").splitlines()
            if line.split()[:1] and line.split()[0] in reach
        }
        assert rows == reach
        assert "a-secret" not in text_of(pilot, "#form-rows")


async def test_queued_plan_gets_choices_that_the_cluster_offers(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = recorded_slurm.cluster(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with open_app(PLAN + "cluster: {num_nodes: 3, num_gpus: 8}\n", size=(120, 60)) as pilot:
        await pilot.press("7")
        await until(pilot, lambda: store(pilot).state.checked and bool(store(pilot).state.lookups))
        assert "SLURM job" not in screen(pilot) and not (programs / "asked").exists()
        store(pilot).edit(("cluster.launcher", "sbatch"), ("cluster.slurm.time", "3-0"))
        await until(pilot, lambda: "at most 2-00:00:00" in screen(pilot))
        assert {f.path for f in store(pilot).state.findings if f.severity == "error"} == {"cluster.slurm.time"}
        pilot.app.screen.jump(PathChosen("cluster.slurm.partition"))
        await pilot.press("right", "right")
        assert value(pilot, "cluster.slurm.partition") == "short"
        await until(pilot, lambda: "gives a job 2 at most" in str(store(pilot).state.findings))


async def test_step_8_is_not_ready_where_no_job_script_can_be_made(open_app: Open) -> None:
    cluster = "cluster: {hosts: {h1: 4, h2: 2}, launcher: sbatch}\n"
    async with open_app(PLAN + cluster) as pilot:
        assert "same number of slots" in store(pilot).state.unlaunchable
        await until(pilot, lambda: "✖ 8 Review & launch" in screen(pilot) and "ready" not in screen(pilot))


async def test_manifest_rows_appear_with_the_first_answer(open_app: Open) -> None:
    async with open_app(PLAN + "cluster: {num_nodes: 2, num_gpus: 8}\n", size=(120, 80)) as pilot:
        await pilot.press("7")
        await until(pilot, lambda: "not used" in screen(pilot))
        assert "cluster.kubernetes.tolerations" not in keys(pilot, "#form-rows")
        pilot.app.screen.jump(PathChosen("cluster.kubernetes.trainer"))
        await pilot.press("right")
        await until(pilot, lambda: "cluster.kubernetes.tolerations" in keys(pilot, "#form-rows"))
        assert value(pilot, "cluster.kubernetes.trainer") == "2.2"
        for path, typed in {
            "volumes": "/data: claim",
            "secrets": "HF_TOKEN: hf/token",
            "resources": "cpu: 16",
            "tolerations": "spot",
        }.items():
            pilot.app.screen.jump(PathChosen(f"cluster.kubernetes.{path}"))
            await pilot.press("enter", *typed, "enter")
        plan = store(pilot).state.plan
        assert (
            plan.cluster.kubernetes.volumes == {"/data": "claim"} and "claimName: claim" in kubernetes_artifact(Target(plan, NO_GPU)).text
        )
        assert (plan.cluster.kubernetes.resources, plan.cluster.kubernetes.tolerations) == ({"cpu": "16"}, ("spot",))
