"""The user's settings in a session: applied at its start, chosen in the palette, edited in the user's own editor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from textual.app import App

from dstui.base.files import FileProblem, is_there, write_atomic
from dstui.plan.finding import Finding
from dstui.site.installed import installed_settings, settings_path
from dstui.site.settings import BY_NAME, SETTINGS, Setting, UserSettings, first_settings
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.kit.keys import KEYS, KeyHint, show_table
from dstui.tui.kit.styles import THEMES
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.session.settings import remember, setting

SHOWN = 4
"""Mistakes of the file that are reported at once."""


class Preferences:
    """Applies settings. `changed` is called when one has another value, for those who show it."""

    def __init__(self, app: App[Any], changed: Callable[[], object]) -> None:
        self._app, self._changed = app, changed
        self.apply_keys()

    # The file

    def apply_keys(self) -> None:
        """Apply the user's own keys to the bindings and to everything that names a key."""
        hints: Sequence[KeyHint] = KEYS
        bindings = dict[str, str]()
        if wished := installed_settings().keys:
            from dstui.tui.kit.keymap import keymap  # most sessions do not need it

            made = keymap(wished)
            hints, bindings = made.hints, dict(made.bindings)
        show_table(hints)
        self._app.set_keymap(bindings)

    def end(self) -> None:
        """Name the default keys again: the user's own belong to the session."""
        show_table(KEYS)

    def tell_mistakes(self) -> None:
        """Report what could not be used in the file."""
        settings = installed_settings()
        found = mistakes(settings, self._app.available_themes)
        shown = min(max(self._app.size.height // 10, 1), SHOWN)
        for problem in found[:shown]:
            say(self._app, settings.sentence(problem), "warning")
        if len(found) > shown:
            say(self._app, f"{len(found) - shown} more mistakes: dstui settings --check lists them", "warning")

    def edit(self) -> None:
        """Edit the file in the user's own editor, and apply the result."""
        from dstui.tui.flows.own_editor import run_editor

        path = settings_path()
        try:
            if not is_there(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, first_settings())
        except (FileProblem, OSError) as error:
            say(self._app, str(error), "error")
            return
        if run_editor(self._app, path):
            self.apply_keys()
            if (theme := setting("theme")) in self._app.available_themes:
                self._app.theme = theme
            self._changed()
            self.tell_mistakes()

    # Single settings

    def remember_theme(self) -> None:
        """Store every further change of the theme as the user's choice."""

        def keep(name: str) -> None:
            in_thread(self._app, partial(remember, "theme", name))

        self._app.watch(self._app, "theme", keep, init=False)

    def choose(self, one: Setting) -> None:
        """Change a setting: toggle one with two values, or ask for the value."""
        if isinstance(one.default, bool):
            self.put(one.name, not setting(one.name))
        elif one.choices:
            answers = [Answer(str(number), choice, choice) for number, choice in enumerate(one.choices, 1)]
            self._app.push_screen(Ask(one.name, one.help, answers), partial(self._put_answer, one.name))
        else:
            from dstui.runs.columns import COLUMNS  # imports what reads runs

            known = f": {', '.join(COLUMNS)}" if one.name == "columns" else ""
            text = f"{one.help} Names separated by commas{known}."
            self._app.push_screen(Prompt(one.name, text, ", ".join(setting(one.name))), partial(self._put_names, one.name))

    def _put_answer(self, name: str, value: str | None) -> None:
        if value is not None:
            self.put(name, value)

    def _put_names(self, name: str, text: str | None) -> None:
        if text is not None:
            self.put(name, [part.strip() for part in text.split(",") if part.strip()])

    def put(self, name: str, value: Any) -> None:
        """Store a value and apply it."""
        in_thread(self._app, partial(self._keep, name, value))

    def _keep(self, name: str, value: Any) -> None:
        if why := remember(name, value):
            self._app.call_later(say, self._app, f"Not kept: {why}", "warning")
        else:
            self._app.call_later(say, self._app, f"{name}: {format_setting(BY_NAME[name])}")
            self._app.call_later(self._changed)


def format_setting(one: Setting) -> str:
    """Return the value of a setting as the palette shows it."""
    value = setting(one.name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else ", ".join(value) or "those that fit"


def choosable() -> Sequence[Setting]:
    """Return the settings that the palette offers individually. Themes have a list of their own."""
    return [one for one in SETTINGS if one.name != "theme"]


OWN = tuple(theme.name for theme in THEMES)


def mistakes(settings: UserSettings, themes: Collection[str]) -> list[Finding]:
    """Return the mistakes in the file, including those that only the TUI can detect: in themes and keys."""
    found = list(settings.problems)
    theme = settings.values.get("theme")
    if theme is not None and theme not in themes:
        found.append(settings.problem(("theme",), f"no theme is called {theme!r}; there are {', '.join(OWN)} and those of Textual"))
    if settings.keys:
        from dstui.tui.kit.keymap import keymap

        found += [settings.problem(("keys", action), why) for action, why in keymap(settings.keys).problems]
    return sorted(found, key=lambda problem: problem.line or 0)
