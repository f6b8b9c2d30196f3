"""Take pictures of the real app: `python screenshots/make.py [NAME ...]`, by default those in the README.

The steps are shown for a recorded machine (dgx_h100.json) and a Plan with a mistake in it; the run is a real one of the quickstart,
on this machine. Writes NAME.png, or NAME.svg where the package resvg-py (extra `screenshots`) or the font Fira Code is missing. Only the
pictures in the README are kept in the repository.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from dstui.documents.plan_files import find_plan, read_plan
from dstui.machine.recorded import read_machine
from dstui.plan import load
from dstui.tui.app import DstuiApp

HERE = Path(__file__).parent.absolute()
FONTS = Path("/usr/share/fonts")
WIDE, NARROW = (120, 40), (80, 24)

# name, size, keys after the start
STEPS = (
    ("machine", WIDE, ["1"]),
    ("job", WIDE, ["2"]),
    ("zero", WIDE, ["3"]),
    ("offload", WIDE, ["4", "down", "down", "enter"]),
    ("precision", WIDE, ["5"]),
    ("batch", WIDE, ["6", *["down"] * 4, "enter"]),
    ("typing", WIDE, ["6", "down", "enter", "backspace", "4"]),
    ("cluster", WIDE, ["7"]),
    ("review", WIDE, ["8", "x"]),
    ("find", WIDE, ["3", "slash", *"bucket"]),
    ("help", WIDE, ["3", "f1"]),
    ("narrow-zero", NARROW, ["3"]),
    ("narrow-checks", NARROW, ["3", "tab", "tab"]),
    ("narrow-review", NARROW, ["8"]),
)

FORECASTS = (
    ("forecast-zero", "FOUR_A100", WIDE, ["3"]),
    ("forecast-offload", "TWO_4090", NARROW, ["4"]),
    ("forecast-batch", "NO_GPU", NARROW, ["6"]),
    ("forecast-plans", "EIGHT_H100", WIDE, ["3", "r", "down"]),
    ("forecast-memory", "EIGHT_H100", WIDE, ["3", "M"]),
)
"""Screens of a 7B model on machines of the tests: memory, speed, and the best plan."""
SEVEN = """\
version: 1
name: llama2-7b
job: {script: train.py, args: [--deepspeed, "{ds_config}"]}
model: {source: meta-llama/Llama-2-7b-hf, sequence_length: 2048, activation_checkpointing: true}
deepspeed:
  train_micro_batch_size_per_gpu: 2
  gradient_accumulation_steps: 8
  bf16: {enabled: true}
  zero_optimization: {stage: 2}
  optimizer: {type: AdamW, params: {lr: 1e-4}}
"""
RUN, FAILURE, START = {"run", "narrow-run", "run-ended", "plot"}, "why", "start"
HOSTS, HOSTS_RUN, ON_LOGIN = "hosts", "hosts-run", "hosts-run-on-login"
IN_README = {"zero", "run", FAILURE, HOSTS, HOSTS_RUN}
FOUR_HOSTS = """\
version: 1
name: llama2-7b
job: {script: train.py, args: [--deepspeed, "{ds_config}"]}
cluster:
  hosts: {worker-1: 8, worker-2: 8, worker-3: 8, worker-4: 8}
  exclude: worker-3:7@worker-4
  launcher: pdsh
  env: {OMP_NUM_THREADS: 8}
deepspeed: {train_micro_batch_size_per_gpu: 2, zero_optimization: {stage: 3}, bf16: {enabled: true},
  optimizer: {type: AdamW, params: {lr: 1e-4}}}
"""
TWO_HOSTS = """\
version: 1
name: two-hosts
job: {module: dstui.examples.train_tiny, workdir: HERE, args: [--steps, "2000", --deepspeed_config, "{ds_config}"]}
cluster: {hosts: {h1: 2, h2: 2}, env: {DS_ACCELERATOR: cpu, OMP_NUM_THREADS: 1}}
deepspeed: {train_micro_batch_size_per_gpu: 1, optimizer: {type: AdamW, params: {lr: 1e-3, torch_adam: true}}}
"""
SCRIPT = "parser.add_argument('--deepspeed')\nengine = deepspeed.initialize(model=model, config=args.deepspeed)\n"
FAILING_PLAN = """\
version: 1
name: sft
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"], python: VENV/bin/python}
cluster: {hosts: {localhost: 4}, env: {DS_ACCELERATOR: cpu}}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""
FAILING = """\
import os
import time


def collate(rows):
    return [row["labels"] for row in rows]


rank = int(os.environ["RANK"])
print("loading the data set", flush=True)
for step in range(1, 40):
    print(f"step {step} loss {2.5 - step / 50:.4f} lr 2.0e-05", flush=True)
    if rank == 2 and step == 12:
        collate([{"input_ids": []}])
    time.sleep(0.1)
"""
JUDGED = ("zero", "batch")
"""Screens with DeepSpeed's own verdict, which has to import DeepSpeed first."""


async def until(pilot: Pilot[int], true: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until a condition is true."""
    for _ in range(int(seconds * 20)):
        await pilot.pause(0.05)
        if true():
            return
    raise SystemExit("the app did not get there; is the machine very busy?")


async def shoot_step(folder: Path, name: str, size: tuple[int, int], keys: list[str]) -> None:
    """Take a picture of a step."""
    plan = folder / "llama2-7b-sft.yaml"
    shutil.copy(HERE / plan.name, plan)
    (folder / "train.py").write_text(SCRIPT)
    app = DstuiApp(read_plan(plan), plan, read_machine(HERE / "dgx_h100.json"), reference=name in JUDGED)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.session.state.checked)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.1)
        if name in JUDGED:
            await until(pilot, lambda: app.session.state.validated == app.session.state.plan.text)
        await pilot.pause(0.3)
        save(app, name)


async def shoot_forecast(folder: Path, name: str, machine: str, size: tuple[int, int], keys: list[str]) -> None:
    """Take a picture of the forecast for a 7B model on a machine of the tests."""
    sys.path.insert(0, str(HERE.parent / "tests" / "forecast"))
    import targets

    (folder / "train.py").write_text(SCRIPT)
    app = DstuiApp(load(SEVEN, "plan.yaml", str(folder)), None, getattr(targets, machine), reference=False)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.session.state.outlook is not None)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.5)
        await pilot.pause(0.5)
        save(app, name)


async def shoot_start(folder: Path) -> None:
    """Take a picture of the start without a file."""
    (folder / "train.py").write_text(SCRIPT)
    app = DstuiApp(None, None, read_machine(HERE / "dgx_h100.json"), reference=False)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.pause(0.5)
        save(app, START)


async def shoot_run(wanted: set[str]) -> None:
    """Take pictures of a real run of the quickstart while it trains and after its end, and of the list of jobs."""
    plan = find_plan("quickstart")
    app = DstuiApp(read_plan(plan), plan, None, reference=False)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.session.state.machine is not None)
        await pilot.press("8", "l")
        await until(pilot, lambda: reached(app, 30))
        shots = {"run": (WIDE, ["a"]), "narrow-run": (NARROW, [])}
        for name, (size, keys) in shots.items():
            await pilot.resize_terminal(*size)
            await pilot.press(*keys)
            await pilot.pause(0.4)
            if name in wanted:
                save(app, name)
        await pilot.resize_terminal(*WIDE)
        await until(pilot, lambda: app.session.state.run == "succeeded")
        await pilot.press("1", "slash", *"loss 1.", "enter")
        await pilot.pause(0.5)
        if "run-ended" in wanted:
            save(app, "run-ended")
        await pilot.press("m", "plus", "plus")
        await pilot.pause(2.0)
        if "plot" in wanted:
            save(app, "plot")


async def shoot_hosts(folder: Path) -> None:
    """Take a picture of step 7 with four hosts, of which some slots are excluded."""
    (folder / "train.py").write_text(SCRIPT)
    app = DstuiApp(load(FOUR_HOSTS, "plan.yaml", str(folder)), None, read_machine(HERE / "dgx_h100.json"), reference=False)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.session.state.checked and app.session.state.lookups)
        await pilot.press("7", *["down"] * 7, *["right"] * 8)
        await pilot.pause(0.5)
        save(app, HOSTS)


def shoot_hosts_run() -> None:
    """Take a picture of a real run on two test hosts, started on a third one; needs root."""
    sys.path.insert(0, str(HERE.parent / "tests" / "hosts"))
    from farm import Farm, missing

    if reason := missing():
        raise SystemExit(f"{HOSTS_RUN}: {reason}")
    with Farm(2) as farm:
        subprocess.run(farm.command("login", [sys.executable, __file__, ON_LOGIN]), check=True)


async def shoot_on_login(folder: Path) -> None:
    """Take the picture of that run on the login host."""
    app = DstuiApp(load(TWO_HOSTS.replace("HERE", str(HERE)), "plan.yaml", str(folder)), None, None, reference=False)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.session.state.machine is not None)
        await pilot.press("8", "l")
        await until(pilot, lambda: "launch anyway" in shown(app) or app.run_screen.view.job is not None)
        if app.run_screen.view.job is None:
            await pilot.press("l")
            await until(pilot, lambda: app.run_screen.view.job is not None)
        view = app.run_screen.view
        await until(pilot, lambda: len(view.job.follower.ranks) == 4 and all((v.step or 0) >= 30 for v in view.job.follower.ranks.values()))
        await pilot.press("u")
        await pilot.pause(0.5)
        save(app, HOSTS_RUN)
        from dstui.jobs.control.stop import stop

        stop(view.job.folder)


def shown(app: DstuiApp) -> str:
    """Return the text of the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def reached(app: DstuiApp, step: int) -> bool:
    """Return whether every rank of the shown job has reached a step."""
    job = app.run_screen.view.job
    return job is not None and bool(job.follower.ranks) and all((view.step or 0) >= step for view in job.follower.ranks.values())


async def shoot_failure(folder: Path) -> None:
    """Take pictures of a real run in which one rank fails, and of its diagnosis."""
    (folder / "train.py").write_text(FAILING)
    venv = folder / "venv"  # the log names the interpreter: the same one wherever the picture is taken
    venv.symlink_to(sys.prefix)
    (folder / "sft.yaml").write_text(FAILING_PLAN.replace("VENV", str(venv)))
    app = DstuiApp(read_plan(folder / "sft.yaml"), folder / "sft.yaml", None, reference=False)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.session.state.machine is not None)
        await pilot.press("8", "l")
        await until(pilot, lambda: app.session.state.run == "failed" and app.run_screen.query_one("#why").display)
        await pilot.pause(4.0)
        save(app, "why")


def save(app: DstuiApp, name: str) -> None:
    """Write NAME.png, or NAME.svg where that is not possible."""
    svg = re.sub(r"terminal-\d+", "terminal", app.export_screenshot(title="dstui"))  # the id differs every time
    png = to_png(svg)
    file = HERE / f"{name}.{'png' if png else 'svg'}"
    file.write_bytes(png or svg.encode())
    print(file.name)


def to_png(svg: str) -> bytes | None:
    """Return the picture as PNG; None if the renderer or the font is missing."""
    if not any(FONTS.rglob("FiraCode*")):
        return None
    try:
        import resvg_py
    except ImportError:
        return None
    return bytes(resvg_py.svg_to_bytes(svg_string=svg.replace("font-family: arial", "font-family: Fira Code"), font_dirs=[str(FONTS)]))


def main(names: list[str]) -> int:
    """Take the named pictures, by default those in the README."""
    wanted = set(names) or IN_README
    if not any(FONTS.rglob("FiraCode*")):
        print("The font Fira Code is not installed (apt install fonts-firacode): only SVG is written.", file=sys.stderr)
    folder = Path(tempfile.gettempdir()) / ("dstui-screenshots-login" if ON_LOGIN in wanted else "dstui-screenshots")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)
    if ON_LOGIN in wanted:
        asyncio.run(shoot_on_login(folder))
    if START in wanted:
        asyncio.run(shoot_start(folder))
    if HOSTS in wanted:
        asyncio.run(shoot_hosts(folder))
    if HOSTS_RUN in wanted:
        shoot_hosts_run()
    for name, size, keys in STEPS:
        if name in wanted:
            asyncio.run(shoot_step(folder, name, size, keys))
    for name, machine, size, keys in FORECASTS:
        if name in wanted:
            asyncio.run(shoot_forecast(folder, name, machine, size, keys))
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "extensions")  # hide what other jobs have built
    if wanted & RUN:
        asyncio.run(shoot_run(wanted))
    if FAILURE in wanted:
        asyncio.run(shoot_failure(folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
