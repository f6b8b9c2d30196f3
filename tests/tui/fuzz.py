"""Random keys, clicks and resizes in the wizard, without launching, saving or quitting."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from textual import events
from textual.errors import NoWidget
from textual.pilot import Pilot

from tests.tui.conftest import PLAN, store

UNUSUAL = ("\ufffd", "\x80", "\x85", "\x9b", "\xe9", "\xff")
"""Invalid UTF-8 bytes as the driver decodes them, and characters of that range."""
KEYS = (
    *UNUSUAL,
    *("up", "down", "left", "right", "pageup", "pagedown", "home", "end"),
    *("enter", "enter", "enter", "space", "escape", "escape", "tab", "shift+tab", "backspace", "delete"),
    *"12345678900jkdxzZnNeEfagrstuvy?",
    *("left_square_bracket", "right_square_bracket", "slash", "comma", "colon", "minus", "full_stop", "quotation_mark"),
    *("f1", "f3", "f4", "f5", "ctrl+z", "ctrl+y", "ctrl+u", "ctrl+w", "ctrl+a", "ctrl+k"),
)
"""Keys with a meaning, and keys that are text while a value is typed; none that launch, write, save or quit."""
SIZES = ((120, 40), (80, 24), (60, 16), (40, 10), (200, 50), (100, 30))
PLANS = {
    "written": PLAN,
    "a trainer's, all auto": (
        'version: 1\njob: {script: train.py, args: [--deepspeed, "{ds_config}"], integration: trainer}\nmodel: {source: nowhere/7b}\n'
        "deepspeed:\n  train_batch_size: auto\n  train_micro_batch_size_per_gpu: auto\n  zero_optimization:\n"
        "    {stage: 3, offload_optimizer: {device: nvme, nvme_path: /nvme}, reduce_bucket_size: auto}\n"
        "  optimizer: {type: AdamW, params: {lr: auto}}\n"
    ),
    "hosts, comments and strange names": (
        "# first\nversion: 1\nname: '[red]x[/bar] \u4e2d\u6587 \U0001f600'\njob:\n  module: a.b # why\n  args: ['--x', \"it's\", '']\n"
        "cluster:\n  hosts: {a: 8, b: 8}\n  env: {A: '1'}\n  launcher: pdsh\nrun: {restarts: {max: 2}}\nmodels: {}\naccelerate: {x: {y: 1}}\n"
        "deepspeed:\n  unknown_key: {deep: [1, {er: null}]}\n  fp16: {enabled: true}\n  train_batch_size: 13\n  zero_optimization: {stage: 9}\n# last\n"
    ),
    "hardly anything": "version: 1\njob: {script: t.py}\ndeepspeed: {}\n",
}


async def send_random_inputs(pilot: Pilot[int], path: Path, count: int, seed: int) -> None:
    """Send `count` random inputs. Then undo must restore the first Plan and redo the last one, and the file must be unchanged."""
    chance, began, on_disk = random.Random(seed), store(pilot).state.plan.text, path.read_text()
    for _ in range(count // 5):
        await some_inputs(pilot, chance)
        assert pilot.app.is_running
        assert not pilot.app._exit
    await pilot.resize_terminal(120, 40)
    while len(pilot.app.screen_stack) > 1:
        await pilot.press("escape")
    pilot.app.main.action_escape()
    assert path.read_text() == on_disk
    ended = repeated(store(pilot).redo, pilot)
    assert repeated(store(pilot).undo, pilot) == began
    assert repeated(store(pilot).redo, pilot) == ended


async def some_inputs(pilot: Pilot[int], chance: random.Random) -> None:
    """Send five keys in most cases, sometimes a click or a resize."""
    kind = chance.random()
    if kind < 0.1:
        await pilot.resize_terminal(*chance.choice(SIZES))
    elif kind < 0.12:
        pilot.app.screen.post_message(events.Paste("".join(chance.choices(UNUSUAL, k=5))))
        await pilot.pause()
    elif kind < 0.3:
        width, height = pilot.app.size
        with suppress(NoWidget):  # the pilot looks up the widget there, and a screen that is being laid out has none
            await pilot.click(
                offset=(chance.randrange(width), chance.randrange(max(height - 1, 1)))
            )  # the footer's keys can launch and quit
    else:
        await pilot.press(*chance.choices(KEYS, k=5))


def repeated(step: Callable[[], bool], pilot: Pilot[int]) -> str:
    """Repeat a step until it is no longer possible; return the Plan's text."""
    while step():
        pass
    return store(pilot).state.plan.text
