"""The user's own keys: from names of actions and keys to Textual's keymap and to the table used by footer, help and palette.

Each action has letters and chords (F-keys, ctrl+…). A new letter replaces its letters, a new chord its chords, so that an action that is
valid while text is typed keeps a key that types nothing. An invalid entry is ignored, with a message.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from textual.keys import KEY_NAME_REPLACEMENTS

from dstui.base.text import similar_words
from dstui.tui.kit.keys import ALWAYS, KEYS, KeyHint, is_chord


def _long_name(character: str) -> str:
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


PUNCTUATION: Final = {_long_name(character): character for character in string.punctuation}
FIXED: Final = frozenset({"digit", "escape", "next-pane", "previous-pane", "dismiss", "set-row", "onward", "look", ""})
"""Actions with fixed keys: steps and ranks by number, escape, tab, Enter."""
NAMED: Final = frozenset({"space", "insert", "delete", "backspace", *(f"f{number}" for number in range(1, 25))})
MODIFIERS: Final = ("ctrl", "alt", "shift")
LIST_KEYS: Final = frozenset(
    {*"0123456789jk", "up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape", "tab", "shift+tab"}
    | {"delete", "backspace", *ALWAYS}
)
"""Keys that move in lists and forms on every screen, keys for steps and ranks by number, and ctrl+c, which always exits."""
FORM_KEYS: Final = frozenset({"d", "space"})
TOGETHER: Final = frozenset({"form", "review"})
"""Panes of one screen, in which a key must have one meaning."""


class Keymap(NamedTuple):
    """The result of applying the user's keys."""

    hints: Sequence[KeyHint] = KEYS
    """The table of keys, including the user's own."""
    bindings: Mapping[str, str] = {}
    """For Textual: the id of a binding -> keys."""
    problems: Sequence[tuple[str, str]] = ()
    """Action and message for each entry that could not be used."""


def remappable() -> tuple[str, ...]:
    """Return the names of the actions whose keys can be changed, in the order of the table."""
    return tuple(dict.fromkeys(key.id for key in KEYS if key.keys and key.id not in FIXED))


def keymap(wished: Mapping[str, Sequence[str]]) -> Keymap:
    """Return the keymap for actions with the user's keys in their usual notation."""
    problems = list[tuple[str, str]]()
    taken = dict[str, tuple[str, ...]]()
    for action, texts in wished.items():
        keys = tuple(key_name(text) for text in texts)
        if why := _refusal(action, texts, keys):
            problems.append((action, why))
        else:
            taken[action] = keys
    while clash := next(_clashes(taken), None):
        action, key, other = clash
        problems.append((action, f"{shown_key(key)!r} is the key of {other!r} already: give one of them another"))
        del taken[action]
    bindings = {}
    for hint in KEYS:
        for old, new in zip(_own(hint), _kinds(hint, taken), strict=True):
            if old != new:
                bindings[hint.binding_id(old[0])] = ",".join(new)
    return Keymap(tuple(_relabelled(taken)), bindings, problems)


def key_name(text: str) -> str:
    """Return Textual's name of a key in the usual notation (L, /, ctrl+l, F6); "" if there is no such key."""
    head, plus, last = text.rpartition("+")
    if text.endswith("+"):  # the key + itself
        head, plus, last = text[:-1].rstrip("+"), text[:-1], "+"
    modifiers = [part.strip().lower() for part in head.split("+")] if plus else []
    name = last.strip() if modifiers else last
    if len(name) == 1:
        name = (name.lower() if "ctrl" in modifiers else name) if name.isalnum() else _long_name(name)
    else:
        name = name.strip().lower()
        name = name if name in NAMED or _character(name) else ""
    if not name or any(modifier not in MODIFIERS for modifier in modifiers):
        return ""
    return "+".join([*(each for each in MODIFIERS if each in modifiers), name])


def shown_key(key: str) -> str:
    """Return a key as the footer shows it."""
    modifiers, plus, last = key.rpartition("+")
    if not plus and len(last) > 1 and last[0] == "f" and last[1:].isdigit():
        return last.upper()
    return f"{modifiers}{plus}{_character(last) or last}"


def _character(name: str) -> str:
    """Return the character of a key with this long name; the text itself if it is a character; "" for others."""
    return name if len(name) == 1 else PUNCTUATION.get(name, "")


def _refusal(action: str, texts: Sequence[str], keys: Sequence[str]) -> str:
    """Return why an action cannot have these keys, ignoring conflicts with other actions; "" if it can."""
    known = remappable()
    if action not in known:
        close = similar_words(action, known, 1, 0.6)
        return f"no action has this name; {f'did you mean {close[0]!r}?' if close else 'docs/keys.md lists them'}"
    if "" in keys:
        return f"no key is called {texts[keys.index('')]!r}: write a character, or F6, ctrl+l, alt+l, space"
    hints = [hint for hint in KEYS if hint.id == action]
    for key in keys:
        if key in ALWAYS:
            return f"{shown_key(key)!r} always leaves dstui: take another key"
        if key in LIST_KEYS or (key in FORM_KEYS and any(hint.where & TOGETHER for hint in hints)):
            return f"{shown_key(key)!r} moves or changes what the cursor is on: take another key"
    if not all(map(is_chord, keys)) and not any(letters for letters, _ in map(_own, hints)):
        return "it is valid while something is typed, so its key must be one that types nothing, such as F6 or ctrl+l"
    return ""


def _own(hint: KeyHint) -> tuple[list[str], list[str]]:
    """Return the letters and the chords of a hint that others may replace."""
    keys = [key for key in hint.keys.split(",") if key and key not in ALWAYS] if hint.id not in FIXED else []
    return [key for key in keys if not is_chord(key)], [key for key in keys if is_chord(key)]


def _kinds(hint: KeyHint, taken: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return the letters and the chords of a hint with these keys."""
    letters, chords = _own(hint)
    if hint.id in taken:
        new_letters = [key for key in taken[hint.id] if not is_chord(key)]
        new_chords = [key for key in taken[hint.id] if is_chord(key)]
        if not any(_own(each)[1] for each in KEYS if each.id == hint.id):
            new_letters, new_chords = [*new_letters, *new_chords], []
        letters, chords = (letters and new_letters) or letters, (chords and new_chords) or chords
    return letters, chords


def _clashes(taken: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """Yield each conflict, last action first: an action, the key, and the action that already has the key on the same screen."""
    used = dict[tuple[str, str], str]()
    order = list(taken)
    for hint in sorted(KEYS, key=lambda hint: order.index(hint.id) if hint.id in taken else -1):
        for key in (*_kinds(hint, taken)[0], *_kinds(hint, taken)[1]):
            for pane in _screens(hint.where):
                other = used.setdefault((pane, key), hint.id)
                if other != hint.id:
                    yield hint.id, key, other


def _screens(panes: Iterable[str]) -> set[str]:
    return {"form" if pane in TOGETHER else pane for pane in panes}


def _relabelled(taken: Mapping[str, Sequence[str]]) -> Iterator[KeyHint]:
    """Yield the table with the new keys. The label of a hint may be a key of another one of its screen: `[ ]`."""
    changed = list[tuple[KeyHint, dict[str, str]]]()
    for hint in KEYS:
        if hint.id in taken:
            pairs = zip(_own(hint), _kinds(hint, taken), strict=True)
            changed.append((hint, {shown_key(old): shown_key(new[0]) for olds, new in pairs for old in olds}))
    for hint in KEYS:
        near = [names for other, names in changed if other.id == hint.id or other.where & hint.where]
        names = {old: new for each in near for old, new in each.items()}
        shown, footer = (" ".join(names.get(word, word) for word in text.split()) for text in (shown_key_of(hint), hint.footer))
        letters, chords = _kinds(hint, taken)
        keys = ",".join((*letters, *chords, *(key for key in hint.keys.split(",") if key in ALWAYS))) if hint.id in taken else hint.keys
        as_it_is = (keys, shown, footer) == (hint.keys, shown_key_of(hint), hint.footer)
        yield hint if as_it_is else hint._replace(keys=keys, display=shown, footer=footer)


def shown_key_of(hint: KeyHint) -> str:
    """Return the label of a hint, with keys as `shown_key` names them."""
    return hint.display or shown_key(hint.keys.partition(",")[0])
