"""Rules about form: unknown keys, values of a wrong type or out of bounds, invalid sections, second and old spellings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from dstui.base.text import similar_words
from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.forms import fit
from dstui.check.rule import Problems, rule
from dstui.check.rules.precision import not_there
from dstui.plan.catalogue import RELEASES, Key, Release, release, spans
from dstui.plan.finding import Fix

MODELS = "runtime/config_utils.py:110"
MONITORS = ("tensorboard", "wandb", "csv_monitor", "comet")
COMMENT = ("_", "#", "//", "comment")
NOT_A_KEY = "strict"  # an argument of the models' constructor, accepted although it is not a key
NEWER = {"bf16": "0.18"}  # `ALSO_TAKEN` holds for these from this release on


@cache
def strict_sections(known: Release) -> tuple[str, ...]:
    """Return the sections that refuse unknown keys."""
    return tuple(key.path for key in known.keys_with("strict"))


@cache
def loose_sections(known: Release) -> tuple[str, ...]:
    """Return the sections that DeepSpeed reads by hand."""
    candidates = (path for path, record in known.records.items() if record["type"] == "section" or path in known.children)
    return tuple(path for path in candidates if (key := known.key(path)) and key.type == "section" and not key.strict)


@cache
def find_sections(known: Release, name: str) -> tuple[str, ...]:
    """Return the paths where a key of this name exists."""
    return tuple(path for path in known.records if path.rpartition(".")[2] == name and not path.startswith("bfloat16."))


def is_read(c: Context, section: str) -> bool:
    """Return whether DeepSpeed reads a section: bfloat16 only if there is no bf16."""
    return not section.startswith("bfloat16") or not_there(c)


def unknown_in(c: Context, section: str) -> Iterator[str]:
    """Yield the keys of a section that the release does not know."""
    content = c.section(section) if section else c.config
    known = c.release.children.get(section, frozenset())
    return (name for name in content if name not in known)


RENAMED = {
    "aio.num_threads": "aio.intra_op_parallelism",
    "aio.thread_count": "aio.intra_op_parallelism",
    "zero3_save_16bit_model": "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_stage": "zero_optimization.stage",
    "checkpointing": "activation_checkpointing",
}
"""Names without similar spellings -> their new names."""


def path_of(section: str, name: str) -> str:
    """Return the dotted path of a key in a section; "" is the top level."""
    return f"{section}.{name}" if section else name


BF16 = ("bf16", "bfloat16")


def _ignored_by(section: str, version: str) -> str:
    """Return the last release before a version that reads a section by hand and ignores unknown keys; "" if none does."""
    older = RELEASES[: RELEASES.index(version)]
    return next((one for one in reversed(older) if section in loose_sections(release(one))), "")


def suggest_key(c: Context, section: str, name: str) -> tuple[str, Fix | None]:
    """Return what an unknown key probably means, in words, and a fix."""
    path = path_of(section, name)
    if (other := spans(path)) and path not in RENAMED:
        older = RELEASES.index(other[-1]) < RELEASES.index(c.release.version)
        text = f"DeepSpeed {other[-1]} knows it" if older else f"known from DeepSpeed {other[0]} on"
        return f"{text}, {c.release.version} does not", c.drop(path, f"remove {path}")
    if (known_as := RENAMED.get(path)) and _same_form(c, path, known_as):
        new_name = known_as.rpartition(".")[2]
        fix = c.drop(path, f"remove {name}") if c.has(known_as) else c.move(path, known_as, f"rename it to {new_name}")
        return f"the key is {known_as}", fix
    if found := _spelled_like(c, section, name):
        new = path_of(section, found)
        if c.has(new):
            return f"did you mean {found}, which is there too?", c.drop(path, f"remove {name}")
        return f"did you mean {found}?", c.move(path, new, f"rename it to {found}")
    if section in BF16 and path_of("fp16", name) in c.release.records:
        return "bf16 needs no loss scaling", c.drop(path, f"remove {path}")
    place = [home for home in find_sections(c.release, name) if home != path]
    if len(place) == 1 and not c.has(place[0]) and _same_form(c, path, place[0]):
        return f"its place is {place[0]}", c.move(path, place[0], f"move it to {place[0]}")
    return "no key of this name is known here", c.drop(path, f"remove {path}")


def _spelled_like(c: Context, section: str, name: str) -> str | None:
    close = _close(tuple(c.release.children.get(section, ())), name)
    return next((key for key in close if _same_form(c, path_of(section, name), path_of(section, key))), None)


@lru_cache(maxsize=512)
def _close(known: tuple[str, ...], name: str) -> list[str]:
    """Return the most similar names, best first. Cached, since it is slow and needed at every keystroke."""

    normalised = {key.lower().replace("-", "_"): key for key in known}
    return [normalised[key] for key in similar_words(name.lower().replace("-", "_").replace(" ", "_"), normalised, 3, 0.8)]


def _same_form(c: Context, path: str, other: str) -> bool:
    """Return whether the value at one path could be at another: a section for a section, a scalar for a scalar."""
    key = c.key(other)
    if key is not None and c.written(path) != AUTO and not fit(c.written(path), key, old=c.old).ok:
        return False
    return key is not None and (key.type in ("section", "dict") or key.type.startswith(("section |", "dict |"))) == isinstance(
        c.written(path), Mapping
    )


@rule("DS011", "warning", source="runtime/config.py:482-588")
def unknown_at_the_top(c: Context) -> Problems:
    """A key at the top level that DeepSpeed does not know: it is silently ignored."""
    for name in unknown_in(c, ""):
        if name in c.release.removed:
            continue
        if name.startswith(COMMENT):
            why = "DeepSpeed ignores unknown keys at the top level"
            yield c.problem(name, f"{name} is a comment", why=why, severity="info", fix=c.drop(name, f"remove {name}"))
            continue
        words, fix = suggest_key(c, "", name)
        yield c.problem(name, f"DeepSpeed ignores the unknown key {name}: {words}", why="no message, no effect", fix=fix)


@rule("DS012", "error", when="parse", says="Extra inputs are not permitted", source=MODELS)
def unknown_in_a_strict_section(c: Context) -> Problems:
    """A key that a section with a model does not know: DeepSpeed refuses it."""
    for section in strict_sections(c.release):
        if section not in c.flat or not is_read(c, section):
            continue
        for name in unknown_in(c, section):
            path = path_of(section, name)
            if not (c.drops_auto(path) and (c.written(path) == AUTO or name == NOT_A_KEY)) and path not in c.release.removed:
                words, fix = suggest_key(c, section, name)
                if ignoring := _ignored_by(section, c.release.version):
                    words += f"; DeepSpeed {ignoring} ignored it"
                says = "extra fields not permitted" if c.old else ""
                yield c.problem(path, f"{section} has no key {name}: {words}", says=says, fix=fix)


OPEN = ("optimizer.params", "scheduler.params", "pipeline", "datastates_ckpt")


@rule("DS013", "warning")
def unknown_in_a_loose_section(c: Context) -> Problems:
    """A key that a section read by hand does not know: it is silently ignored."""
    for section in loose_sections(c.release):
        if section in c.flat and not section.startswith(OPEN) and section.partition(".")[0] not in c.release.removed:
            for name in unknown_in(c, section):
                if not c.release.children.get(section) or name.startswith(COMMENT):
                    continue
                words, fix = suggest_key(c, section, name)
                message = f"DeepSpeed ignores the unknown key {name} in {section}: {words}"
                yield c.problem(path_of(section, name), message, why="no message, no effect", fix=fix)


@rule("DS019", "error", when="parse", says="Input should be", source="pydantic")
def value_does_not_fit(c: Context) -> Problems:
    """A value of a wrong type, out of bounds or not allowed, in a section with a model."""
    for section in strict_sections(c.release):
        if section not in c.flat or not is_read(c, section):
            continue
        for name, value in c.section(section).items():
            path = path_of(section, name)
            key = c.key(path) or _by_python_name(c, section, name)
            if key is None or (value == AUTO and c.drops_auto(path)) or accepted_besides(path, value):
                continue
            found = c.fit(path) if key.path == path else c.fit(key.path)
            if not found.ok:
                yield c.problem(path, f"{name} is {_shown(value)}: it must be {found.expected}", fix=_nearest(c, path, value, key))


def _by_python_name(c: Context, section: str, name: str) -> Key | None:
    keys = (c.key(path_of(section, known)) for known in c.release.children.get(section, ()))
    return next((key for key in keys if key and key.python_name == name), None)


def accepted_besides(path: str, value: Any) -> bool:
    """Return whether code of a section accepts a value beyond its declared types."""
    if path == "zero_optimization.leaf_module":
        return value is None
    return path.startswith("zero_optimization.leaf_module.") and isinstance(value, str)


def _shown(value: Any) -> str:
    """Describe a value as the file has it. Long ones are cut."""
    if isinstance(value, (list, Mapping)):
        return "a list" if isinstance(value, list) else "a section"
    text = repr(value) if isinstance(value, str) else {"True": "true", "False": "false", "None": "null"}.get(str(value), str(value))
    return text if len(text) < 60 else text[:57] + "…"


def _nearest(c: Context, path: str, value: Any, key: Key) -> Fix:
    """Return a fix with the probable value: the number in a string, the nearest bound, the similar choice; else the default."""
    candidates: list[Any] = []
    if isinstance(value, str):
        candidates += [choice for choice in key.choices if str(choice).lower() == value.strip().lower()]
        try:
            number = float(value)
            candidates += [int(number) if number == int(number) else number]
        except (ValueError, OverflowError):
            pass
    elif isinstance(value, float) and abs(value) < 1e18:
        candidates.append(round(value))
    numbers = [number for number in (value, *candidates) if isinstance(number, (int, float)) and not isinstance(number, bool)]
    candidates += [max(number, key.minimum) for number in numbers if key.minimum is not None]
    candidates += [min(number, key.maximum) for number in numbers if key.maximum is not None]
    if isinstance(value, (int, float)) and key.choices and isinstance(key.choices[0], int):
        candidates.append(min(key.choices, key=lambda choice: abs(choice - value)))
    for new in candidates:
        if fit(new, key, old=c.old).ok:
            return c.put(path, new, f"write {new}")
    return c.drop(path, f"remove it: the default is {_shown(key.default)}")


def _is_null(value: Any) -> bool:
    return value is None


def _is_empty(value: Any) -> bool:
    return not value


def _empty(c: Context, section: str) -> Fix:
    """Return a fix that removes an invalid section, or empties it: accelerate requires zero_optimization."""
    if section == "zero_optimization" and c.integration != "deepspeed":
        return c.put(section, {}, "make it an empty section")
    return c.drop(section, f"remove {section}")


def accept_nothing(_value: Any) -> bool:
    """Return False: the default of `ALSO_TAKEN`, where only a section is accepted."""
    return False


def _no_throughput(value: Any) -> bool:
    return isinstance(value, (list, str)) and "throughput" not in value


ALSO_TAKEN: dict[str, Callable[[Any], bool]] = {
    "aio": _is_null,
    "bf16": _is_null,
    "autotuning.model_info": _is_null,
    "checkpoint.writer": _is_null,
    "expert_parallel": _is_empty,
    "timers": _no_throughput,
    "zero_optimization": lambda value: isinstance(value, bool),
    **{name: lambda value: value == AUTO for name in MONITORS},
}
"""Section -> test for other values that DeepSpeed accepts instead."""


@rule("DS020", "error", when="parse", says="argument after ** must be a mapping", source="runtime/zero/config.py:78")
def section_that_is_none(c: Context) -> Problems:
    """Null, a list, a word or a number instead of a section."""
    for section in (*strict_sections(c.release), *loose_sections(c.release)):
        value = c.flat.get(section, MISSING)
        if value is MISSING or isinstance(value, Mapping) or section.endswith(".params"):
            continue
        parent = c.key(section.rpartition(".")[0])
        checked_by_model = parent is not None and parent.strict
        if (
            checked_by_model
            or not is_read(c, section)
            or section in c.release.removed
            or (ALSO_TAKEN.get(section, accept_nothing)(value) and not c.before(NEWER.get(section, "0.0")))
        ):
            continue
        says = "'NoneType' object has no attribute" if value is None and section in loose_sections(c.release) else ""
        yield c.problem(section, f"{section} is {_shown(value)}: it must be a section", says=says, fix=_empty(c, section))


@rule("DS044", "warning", says="is deprecated", source="runtime/config_utils.py:70")
def deprecated_key(c: Context) -> Problems:
    """A key with its old name."""
    for key in deprecated_keys(c.release):
        if c.has(key.path) and c.written(key.path) != AUTO:
            new = _new_name(c, key)
            if c.has(new) or (key.carried_over is False and key.replacement):
                continue
            yield c.problem(
                key.path, f"{key.name} is deprecated: use {new}" if new else f"{key.name} is deprecated", fix=_renamed(c, key, new)
            )


@cache
def deprecated_keys(known: Release) -> tuple[Key, ...]:
    """Return the keys with old names."""
    return tuple(known.keys_with("deprecated"))


def _new_name(c: Context, key: Key) -> str:
    """Return the path of the key that replaces a deprecated one, as a user writes it."""
    if not key.replacement:
        return ""
    section = key.path.rpartition(".")[0]
    path = path_of(section, key.replacement)
    if c.key(path):
        return path
    renamed = _by_python_name(c, section, key.replacement)
    return renamed.path if renamed else path


def _renamed(c: Context, key: Key, new: str) -> Fix:
    value = c.written(key.path)
    if new.endswith(("offload_optimizer", "offload_param")):
        if not c.on(key.path):
            return c.drop(key.path, f"remove {key.name}")
        value = {"device": "cpu"}
    return c.move(key.path, new, f"write {new} instead", value) if new else c.drop(key.path, f"remove {key.name}")


@rule("DS045", "error", when="parse", says="Cannot provide deprecated parameter", source="runtime/config_utils.py:89")
def old_and_new_name(c: Context) -> Problems:
    """A key and its replacement are both set."""
    for key in deprecated_keys(c.release):
        new = _new_name(c, key)
        if not (c.has(key.path) and c.written(key.path) != AUTO and new and key.carried_over):
            continue
        spellings = (new, path_of(new.rpartition(".")[0], key.replacement))
        if any(c.has(path) and c.written(path) != AUTO for path in spellings):
            says = f"Cannot provide deprecated parameter '{key.name}' and replacing parameter '{key.replacement}' together"
            yield c.problem(
                key.path, f"{key.name} and {new.rpartition('.')[2]} are the same", says=says, fix=c.drop(key.path, f"remove {key.name}")
            )


@rule("DS046", "warning", says="is deprecated", source="runtime/zero/config.py:199-207")
def old_name_without_effect(c: Context) -> Problems:
    """A deprecated key whose value DeepSpeed no longer uses."""
    for key in deprecated_keys(c.release):
        if c.has(key.path) and not key.carried_over and key.replacement:
            message = f"{key.name} has no effect any more: use pin_memory in offload_param and offload_optimizer"
            yield c.problem(key.path, message, fix=c.drop(key.path, f"remove {key.name}"))


@rule("DS047", "error", when="parse", says="Extra inputs are not permitted", source=MODELS)
def two_spellings(c: Context) -> Problems:
    """A key is set under both its file name and its Python name."""
    for key in aliased_keys(c.release):
        other = path_of(key.path.rpartition(".")[0], key.python_name)
        if c.has(key.path) and c.has(other) and AUTO not in (c.written(key.path), c.written(other)):
            yield c.problem(other, f"{key.python_name} is another spelling of {key.name}", fix=c.drop(other, f"remove {key.python_name}"))


@cache
def aliased_keys(known: Release) -> tuple[Key, ...]:
    """Return the keys with a second spelling."""
    return tuple(known.keys_with("python_name"))
