"""Names from a Plan, a file or a host never reach the terminal as control sequences."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.segment import Segment
from textual.pilot import Pilot

from dstui.base.text import UNSAFE
from dstui.tui.kit.drawing import SAFELY
from tests.terminal import Terminal
from tests.tui.conftest import PLAN, Open, screen, store, until

OSC = "]52;c;aGFja2Vk"
HOSTILE = PLAN.replace("name: small ", f'name: "x\\e{OSC}\\a\\u202ey" ').replace("  script: train.py", f'  script: "tr\\e{OSC}\\a.py"') + (
    f'  "a\\e{OSC}\\a": "b\\e{OSC}\\a"\n  "[/nothing]": "[red]"\ncluster: {{launcher_args: ["\\e{OSC}\\a"], hosts: {{localhost: 2}}}}\n'
)
KEYS = (
    "1",
    "2",
    "enter",
    "escape",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "ctrl+p",
    "escape",
    "f1",
    "escape",
    "f2",
    "tab",
    "tab",
    "down",
    "enter",
    "escape",
)


def unsafe(pilot: Pilot[int]) -> list[str]:
    """Return parts of the screen that a terminal would interpret."""
    return [strip.text for strip in pilot.app.screen._compositor.render_strips() if UNSAFE.search(strip.text)]


async def test_names_keys_and_values_of_a_hostile_plan_are_only_drawn(open_app: Open) -> None:
    async with open_app(HOSTILE) as pilot:
        assert "\x1b" in store(pilot).state.plan.name
        for key in KEYS:
            await pilot.press(key)
            await pilot.pause()
            assert unsafe(pilot) == [], key
        pilot.app.notify(f"a note \x1b{OSC}\x07", markup=False)
        await until(pilot, lambda: "a note" in screen(pilot))
        assert unsafe(pilot) == [] and pilot.app.is_running


def test_terminal_gets_no_clipboard_sequence_from_names(tmp_path: Path) -> None:
    name = f"plan\x1b{OSC}\x07.yaml"
    (tmp_path / name).write_text(HOSTILE)
    terminal = Terminal([sys.executable, "-m", "dstui", name], cwd=str(tmp_path))
    try:
        terminal.wait("1 · Machine")
        for key, shown in {"2": "2 · Job", "3": "3 · ZeRO", "8": "What will be written"}.items():
            terminal.press(key)
            terminal.wait(shown)
        assert b"\x1b" + OSC.encode() not in terminal.raw and b"\x9d" not in terminal.raw
        assert OSC.encode()[:6] in terminal.raw, "its characters are drawn"
    finally:
        terminal.close()


def test_safe_line_is_unchanged_and_others_keep_their_width() -> None:
    plain = [Segment("step 1 · loss 日本"), Segment("✔")]
    assert SAFELY.apply(plain, None) is plain
    (drawn,) = SAFELY.apply([Segment("a\x1bb\tc\x07\u202ed")], None)
    assert drawn.cell_length == Segment("a\x1bb\tc\x07\u202ed").cell_length and not UNSAFE.search(drawn.text)
