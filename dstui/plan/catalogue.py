"""DeepSpeed's configuration keys as data: type, default, bounds, help, and the releases that know them.

The facts of a release are in `data/deepspeed-VERSION.json`, written by `dstui/reference/extract.py` from the code of that release. What the
code does not tell (help texts, reasons for defaults, the ZeRO stages at which a key matters, the type of a key that is read by hand) is in
`data/curated.json`. Both are read at the first look-up (3 ms), not at import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass

RELEASES = ("0.14.5", "0.16.9", "0.18.2", "0.19.8")
"""The releases with a catalogue of their own, oldest first."""
ZERO_SECTION = "zero_optimization"
NEWEST = RELEASES[-1]
DATA = Path(__file__).parent / "data"
SOURCE = "https://github.com/deepspeedai/DeepSpeed/blob/v{version}/deepspeed/{file}#L{line}"


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. `path` is dotted from the root of ds_config.json."""

    path: str
    type: str
    """`bool`, `int`, `float`, `str`, `path`, `choice`, `dict`, `list[str]`, `int | null`, …, `section`, or `any`."""
    default: Any = None
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    """The value must be greater than this."""
    below: float | None = None
    """The value must be less than this."""
    help: str = ""
    why: str = ""
    """The reason for the default, where one is known."""
    stages: tuple[int, ...] = ()
    """The ZeRO stages at which the key does something; empty where the stage does not matter."""
    deprecated: bool = False
    replacement: str = ""
    carried_over: bool = True
    """True if DeepSpeed itself moves the value of a deprecated key to its replacement."""
    python_name: str = ""
    """A second accepted spelling: the name of the field if the key is an alias."""
    strict: bool = False
    """True if the section refuses unknown keys."""
    source: str = ""
    """A link to the line that declares or reads the key."""
    pages: tuple[str, ...] = ()
    """Links to explanations: DeepSpeed's documentation, then papers."""
    version: str = NEWEST

    @property
    def since(self) -> str | None:
        """The first release of `RELEASES` that knows the key; None if the oldest does."""
        known = spans(self.path)
        return None if not known or known[0] == RELEASES[0] else known[0]

    @property
    def until(self) -> str | None:
        """The last release of `RELEASES` that knows the key; None if the newest does."""
        known = spans(self.path)
        return None if not known or known[-1] == NEWEST else known[-1]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, eq=False)
class Release:
    """The keys of one release of DeepSpeed."""

    version: str
    records: Mapping[str, Mapping[str, Any]]
    removed: Mapping[str, str]
    """Keys that this release refuses because the feature is gone, with DeepSpeed's message."""
    optimizer_types: tuple[str, ...]
    optimizers: Mapping[str, Mapping[str, Any]]
    """Class -> the parameters it takes: DeepSpeed's own in lower case, those of torch.optim by their exact names."""
    schedulers: Mapping[str, Mapping[str, Any]]
    children: Mapping[str, frozenset[str]]
    """Section -> names of the keys in it, second spellings included; "" is the top level."""
    _keys: dict[str, Key] = field(default_factory=dict)

    def key(self, path: str) -> Key | None:
        """Return the key at a dotted path; None if this release has none."""
        found = self._keys.get(path)
        if found is None and path in self.records:
            parent = self.records.get(path.rpartition(".")[0], {})
            found = self._keys[path] = _key(self.version, path, self.records[path], bool(parent.get("strict")))
        return found

    def keys(self) -> Iterator[Key]:
        """Yield every key in the order of their paths."""
        return (key for path in self.records if (key := self.key(path)))

    def keys_with(self, fact: str) -> Iterator[Key]:
        """Yield the keys whose record has a fact, such as `deprecated`. The others are not made: all of them take 3 ms."""
        return (key for path, record in self.records.items() if record.get(fact) and (key := self.key(path)))


VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


@cache
def release(version: str | None = None) -> Release:
    """Return the catalogue of a release: its own, else that of the nearest older one, else the oldest. None means the newest."""
    nearest = nearest_release(version)
    facts = json.loads((DATA / f"deepspeed-{nearest}.json").read_bytes())
    records: dict[str, dict[str, Any]] = {record["path"]: record for record in facts["keys"]}
    for path, extra in _curated().items():
        if extra.get("unread") and _in_release(path, extra, nearest, records):
            records[path] = {"path": path, "type": "any", **extra}
    children: dict[str, set[str]] = {}
    for path, record in records.items():
        parent, _, name = path.rpartition(".")
        children.setdefault(parent, set()).update(filter(None, (name, record.get("python_name"))))
    return Release(
        version=nearest,
        records=dict(sorted(records.items())),
        removed=facts["removed"],
        optimizer_types=tuple(facts["optimizer_types"]),
        optimizers=facts["optimizers"],
        schedulers=facts["schedulers"],
        children={parent: frozenset(names) for parent, names in children.items()},
    )


def nearest_release(version: str | None) -> str:
    """Return the release in `RELEASES` whose catalogue applies to `version`."""
    if version is None:
        return NEWEST
    wanted = version_tuple(version)
    return max((known for known in RELEASES if version_tuple(known) <= wanted), key=version_tuple, default=RELEASES[0])


def is_version(value: object) -> bool:
    """Return whether `version_tuple` accepts a value: a recorded machine may name any version."""
    return isinstance(value, str) and VERSION.match(value) is not None


@lru_cache(maxsize=64)
def version_tuple(version: str) -> tuple[int, ...]:
    """Convert a version to numbers: `0.19.8+cu128` and `0.19.8rc1` give (0, 19, 8). Raises ValueError."""
    match = VERSION.match(version)
    if match is None:
        raise ValueError(f"{version!r} is not a version")
    return tuple(int(part or 0) for part in match.groups())


def lookup(path: str, version: str | None = None) -> Key | None:
    """Return the key at a path without the leading `deepspeed.`, from the newest release that has it."""
    if version is not None:
        return release(version).key(path)
    return next((key for known in reversed(RELEASES) if (key := release(known).key(path))), None)


@cache
def spans(path: str) -> tuple[str, ...]:
    """Return the releases that know a key."""
    return tuple(version for version in RELEASES if path in release(version).records)


def __getattr__(name: str) -> Any:
    """Build `KEYS`, every key of the newest release by path, on first use."""
    if name == "KEYS":
        return {key.path: key for key in release().keys()}  # noqa: SIM118
    raise AttributeError(name)


@cache
def _curated() -> Mapping[str, Mapping[str, Any]]:
    curated: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "curated.json").read_bytes())
    return curated


def _in_release(path: str, extra: Mapping[str, Any], version: str, records: Mapping[str, Any]) -> bool:
    """Return whether a release has a key that its parser never reads (`unread`): it has the section, and `since` and `until` match."""
    parent = path.rpartition(".")[0]
    in_time = version_tuple(extra.get("since", RELEASES[0])) <= version_tuple(version) <= version_tuple(extra.get("until", NEWEST))
    return in_time and (not parent or parent in records)


def _key(version: str, path: str, record: Mapping[str, Any], modelled: bool) -> Key:
    curated = _curated().get("bf16" + path.removeprefix("bfloat16") if path.startswith("bfloat16.") else path, {})
    reported = {} if modelled else curated  # a pydantic model declares its own types and defaults
    kind = record["type"] if "strict" in record else reported.get("type", record["type"])
    file, _, line = record.get("source", "").rpartition(":")
    whole = kind.startswith("int")
    return Key(
        path=path,
        type=kind,
        default=reported.get("default", record.get("default")),
        choices=tuple(record.get("choices", reported.get("choices", ()))),
        minimum=record.get("ge", record["gt"] + 1 if whole and "gt" in record else reported.get("minimum")),
        maximum=record.get("le", record["lt"] - 1 if whole and "lt" in record else reported.get("maximum")),
        above=record.get("gt"),
        below=record.get("lt"),
        help=curated.get("help") or _inherited(path, "help", ""),
        why=curated.get("why", ""),
        stages=tuple(curated.get("stages", ())),
        deprecated=record.get("deprecated", False),
        replacement=record.get("replacement", ""),
        carried_over=record.get("carried_over", True),
        python_name=record.get("python_name", ""),
        strict=record.get("strict", False),
        source=SOURCE.format(version=version, file=file, line=line) if file else "",
        pages=tuple(curated.get("pages") or _inherited(path, "pages", ())),
        version=version,
    )


def _inherited(path: str, what: str, none: Any) -> Any:
    """Return an attribute of the nearest section around a key, for a key that has none of its own."""
    parent = path.rpartition(".")[0]
    return (_curated().get(parent, {}).get(what) or _inherited(parent, what, none)) if parent else none
