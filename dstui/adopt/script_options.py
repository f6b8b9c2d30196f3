"""Read the options of a script from a launch: from its words, and from the YAML files that they name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

MAX_VALUES = 64
"""Values of one option that are read, as in a list of modules."""
YAMLS = (".yaml", ".yml")


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Parse `--option value …`, `--option=value` and `--switch` ("true"). Names have `_` for `-`; several values are joined by commas."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("--") and len(word) > len("--"):
            name, equals, value = word[2:].partition("=")
            following = _values(words[at + 1 : at + 1 + MAX_VALUES])
            found[name.replace("-", "_")] = value if equals else ",".join(following) or "true"
    return found


def _values(words: Sequence[str]) -> Iterator[str]:
    """Yield the words up to the next option."""
    for word in words:
        if word.startswith("--"):
            return
        yield word.strip(",")


def options_of_yamls(words: Sequence[str], read_named: Callable[[str], str | None]) -> dict[str, str]:
    """Return scalars and lists of the YAML files in the words: those of trl, LLaMA-Factory, axolotl and alignment-handbook.

    An unreadable file is ignored: the program that reads it will report it.
    """
    found: dict[str, str] = {}
    for word in words:
        name = word.partition("=")[2] if word.startswith("--") else word
        text = read_named(name) if name.endswith(YAMLS) else None
        if text is not None:
            found |= _options_in(text)
    return found


def _options_in(text: str) -> dict[str, str]:
    from dstui.adopt.accelerate import read_accelerate  # few launches name a YAML
    from dstui.adopt.dsconfig import ConfigError

    try:
        return _scalars(read_accelerate(text).config)
    except ConfigError:
        return {}


def _scalars(values: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, list):
            found[name] = ",".join(str(one) for one in value[:MAX_VALUES] if isinstance(one, str))
        elif isinstance(value, (str, int, float)):
            found[name] = str(value)
    return found
