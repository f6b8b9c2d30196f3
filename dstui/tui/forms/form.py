"""The form of a step: rows with a cursor, and one Input on top of the row that is being edited."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widgets import Input

from dstui.tui.forms.fields import Field, NotThat, Option, default_of, editable_text, format_value, parse_value, why_fixed
from dstui.tui.forms.form_parts import Editor, FormRows
from dstui.tui.forms.form_rows import NEXT, FieldKey, OptionKey, chosen_option, form_rows, typing_place
from dstui.tui.forms.slot_grid import SlotKey, picked
from dstui.tui.forms.steps import STEPS, Step
from dstui.tui.kit.breakpoints import ROOMY
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row
from dstui.tui.session.session import Session
from dstui.tui.session.state import UNSET, State


class Form(Container):
    """The form of the current step. It edits the Plan through the session and draws itself from the state."""

    class Onward(Message):
        """The user wants the next step."""

    def __init__(self, session: Session) -> None:
        super().__init__(id="form")
        self.session = session
        self.step: Step = STEPS[0]
        self.opened = ""
        """The path of the expanded choice, or of the field being typed in."""
        self._placed = (0, 0, 0)
        self.rows = FormRows()
        self._editor = Editor(self._typed)
        """Mounted when the first row is opened, and then only hidden: a removed one may still exist when the next one is mounted."""

    def compose(self) -> ComposeResult:
        """Compose the rows."""
        yield self.rows

    @property
    def editor(self) -> Editor | None:
        """Return the Input while something is being typed, else None."""
        return self._editor if self._editor.display and self._editor.is_attached else None

    # Drawing

    def show(self, state: State) -> None:
        """Draw the form of the current step."""
        self.rows.show_rows(self._rows(state))
        if self.editor is not None:
            self._place(self.editor)

    def _rows(self, state: State) -> list[Row]:
        width = (self.rows.size.width or 48) - self.rows.MARGIN
        return form_rows(self.step, state, width, self.opened, roomy=self.app.size.height >= ROOMY)

    def show_step(self, step: Step, state: State, path: str = "") -> None:
        """Show another step, with the cursor on `path` if given."""
        self.close()
        self.step = step
        self.rows.scroll_to(y=0, animate=False)
        self.rows.cursor = None
        self.show(state)
        self.rows.cursor = self._key_for(path, state) if path else self._first_key(state)
        if self.rows.cursor and not path:
            self.rows.scroll_to(y=0, animate=False)

    def _first_key(self, state: State) -> Any:
        first = next(iter(self.step.fields(state)), None)
        return self._key_for(first.path, state) if first else None

    def _key_for(self, path: str, state: State) -> Any:
        field = self.field_at(path)
        if field is not None and field.spread:
            chosen = chosen_option(field, state)
            return OptionKey(path, field.options.index(chosen) if chosen else 0)
        return FieldKey(path)

    def field_at(self, path: str) -> Field | None:
        """Return the field of this step with this path."""
        return next((f for f in self.step.fields(self.session.state) if f.path == path), None)

    def at(self, key: Hashable) -> tuple[Field | None, Option | None]:
        """Return the field and the option of a row, if they still exist: an edit may have removed them."""
        match key:
            case OptionKey(path=path, number=number):
                field = self.field_at(path)
                options = field.options if field is not None else ()
                return field, options[number] if number < len(options) else None
            case FieldKey(path=path) | SlotKey(path=path):
                return self.field_at(path), None
        return None, None

    @property
    def on_next(self) -> bool:
        """Return whether the cursor is on the row that leads to the next step."""
        return self.rows.cursor == NEXT

    def rest_on_next(self) -> None:
        """Move the cursor to the row that leads to the next step, so that Enter goes on."""
        self.rows.cursor = NEXT
        self.rows.scroll_to(y=0, animate=False)

    @property
    def here(self) -> Field | None:
        """Return the field under the cursor."""
        return self.at(self.rows.cursor)[0]

    # Acting on a row

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        if self.editor is not None:  # a click elsewhere while typing
            self.close()
            self.rows.cursor = event.key
        if event.key == NEXT:
            self.post_message(self.Onward())
        field, option = self.at(event.key)
        if field is None or self._says_disabled(field, option):
            return
        match event.key, field.kind:
            case OptionKey(), _:
                self._take(field, option)
            case SlotKey(host=host), _:
                self._pick(field, host)
            case _, "choice" | "grid":
                self._spread(field)
            case _, "toggle":
                self._turn(field, 1)
            case _:
                self._type_into(field)

    def _says_disabled(self, field: Field, option: Option | None) -> bool:
        state = self.session.state
        why = why_fixed(field, state)
        why = why or (option.disabled(state) if option and option.disabled else "")
        if why:
            self.app.notify(f"{option.label if option else field.label}: {why}", severity="warning", markup=False)
        return bool(why)

    def _take(self, field: Field, option: Option | None) -> None:
        if option is None:
            return
        self.opened = ""
        self._answer(field, option.value)
        self.show(self.session.state)
        if not field.spread:
            self.rows.cursor = FieldKey(field.path)

    def _pick(self, field: Field, host: str) -> None:
        try:
            self.session.edit(*picked(self.session.state, host, self.rows.column))
        except NotThat as problem:
            self.session.refuse(field.path, str(problem))

    def _spread(self, field: Field) -> None:
        self.opened = "" if self.opened == field.path else field.path
        self.show(self.session.state)
        if self.opened and field.kind == "choice":
            chosen = chosen_option(field, self.session.state)
            self.rows.cursor = OptionKey(field.path, field.options.index(chosen) if chosen else 0)

    @on(FormRows.Turn)
    def _turned(self, event: FormRows.Turn) -> None:
        field, option = self.at(event.key)
        if field is None or self._says_disabled(field, option):
            return
        if isinstance(event.key, OptionKey):
            self._take(field, option)
        else:
            self._turn(field, event.by)

    def _turn(self, field: Field, by: int) -> None:
        state = self.session.state
        if field.kind == "toggle":
            value = field.value(state)
            now = default_of(field) if value is UNSET else value
            self._answer(field, now is not True)
        elif field.kind == "choice":
            possible = [o for o in field.options if not (o.disabled and o.disabled(state))]
            chosen = chosen_option(field, state)
            at = possible.index(chosen) if chosen in possible else -1
            self._answer(field, possible[(at + by) % len(possible)].value)

    def _answer(self, field: Field, value: Any) -> None:
        """Write an answer to the Plan; for the choice of a model, select that model."""
        if field.selects_model:
            self.session.select_model(value)
        else:
            self.session.edit(*field.edits(self.session.state, value))

    @on(FormRows.Clear)
    def _cleared(self, event: FormRows.Clear) -> None:
        field, option = self.at(event.key)
        if field is not None and not field.selects_model and not self._says_disabled(field, option):
            self.session.edit(*(field.edits(self.session.state, UNSET) if field.kind == "grid" else ((field.path, UNSET),)))

    # Typing

    def _type_into(self, field: Field) -> None:
        if not self.is_attached:  # the session ends, and this key arrived just before
            return
        self.opened = field.path
        self.show(self.session.state)
        if not self._editor.is_attached:
            self.mount(self._editor)
        default = format_value(default_of(field))
        self._editor.open(editable_text(field.value(self.session.state)), f"{default} by default" if default != "–" else "")
        self._placed = (0, 0, 0)
        self._place(self._editor)

    def _place(self, editor: Editor) -> None:
        field, y = self.field_at(self.opened), self.rows.index_of(FieldKey(self.opened))
        if field is not None and y is not None:
            left, down, width = typing_place(field, self.rows.size.width - self.rows.MARGIN)
            place = (left + self.rows.MARGIN, y + down - self.rows.scroll_offset.y, max(width, 8))
            if place != self._placed:
                self._placed = place
                editor.lie(*place)

    def _typed(self, editor: Editor, text: str) -> None:
        field = self.field_at(self.opened)
        state = self.session.state
        if field is None or (text == editable_text(field.value(state)) and not state.refusal[0]):
            return
        try:
            value = parse_value(field, text)
        except NotThat as problem:
            self.session.refuse(field.path, str(problem))
            editor.add_class("-wrong")
            self.call_after_refresh(self._reveal_why, editor)
            return
        taken = self.session.edit(*field.edits(self.session.state, value), live=True)
        editor.set_class(not taken, "-wrong")
        if not taken:
            self.call_after_refresh(self._reveal_why, editor)

    def _reveal_why(self, editor: Editor) -> None:
        """Scroll to the reason why a value was refused, and move the Input along."""
        self.rows.reveal(FieldKey(self.opened), 2)
        self.call_after_refresh(self._place, editor)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        field = self.field_at(self.opened)
        if field is not None and (why := self._wrong(field, event.value)):
            self.app.notify(why, severity="error", markup=False)
            return
        self.close()

    def _wrong(self, field: Field, text: str) -> str:
        try:
            parse_value(field, text)
        except NotThat as error:
            return str(error)
        path, sentence = self.session.state.refusal
        return sentence if path == field.path else ""

    @on(Editor.Closed)
    def _left(self, event: Editor.Closed) -> None:
        event.stop()
        field, editor = self.field_at(self.opened), self.editor
        if field is not None and editor is not None and self._wrong(field, editor.value):
            self.app.notify(
                f"{field.label} stays {format_value(field.value(self.session.state))}: {self._wrong(field, editor.value)}", markup=False
            )
        self.close()

    def close(self) -> bool:
        """Close the Input or the opened choice; what was typed is one undo step. Returns False if nothing was open."""
        was, self.opened = self.opened, ""
        editor = self.editor
        if editor is not None:
            self.session.settle()
            self.rows.focus()
            editor.hide()
        if was:
            self.show(self.session.state)
            self.rows.cursor = FieldKey(was)
        return bool(was)
