"""What the app does for its palette: every action by its name, wherever it is a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from dstui.tui.beginning import Beginning
from dstui.tui.dialogs.over import Over
from dstui.tui.forms.steps import STEPS
from dstui.tui.forms.steps.review_run import REVIEW, RUN
from dstui.tui.kit.keys import KeyHint

if TYPE_CHECKING:
    from textual.command import Provider


def _commands() -> type[Provider]:
    from dstui.tui.commands import Commands  # brings Textual's palette, which nobody has opened yet

    return Commands


class ByName(Beginning):
    """The part of the app that opens palettes."""

    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}

    def action_command_palette(self) -> None:
        """Every action by its name."""
        from dstui.tui.commands import Palette

        self.push_screen(Palette())

    def search_themes(self) -> None:
        """The palette of colours."""
        from textual.theme import ThemeProvider

        from dstui.tui.commands import Palette

        self.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    async def perform(self, key: KeyHint) -> None:
        """Do what a key does. Where it is one of another pane, go there: what it acts on should be seen before."""
        if isinstance(self.screen, Over):
            await self.screen.run_action(key.action)
        elif self.can(key.name):
            await self.run_action(key.action)
        elif self.step.pane in key.where:
            self.say(f"{key.label.capitalize()} ({key.shown}) has nothing to act on now.", "warning")
        else:
            self.show_step(REVIEW if "review" in key.where else RUN if "run" in key.where else STEPS[0])
            self.say(f"{key.shown} does it here: {key.help}")

    def can(self, action: str) -> bool:
        """Whether an action does something now; the app knows."""
        raise NotImplementedError
