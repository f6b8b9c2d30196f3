"""`dstui.base.dataclass` makes classes that behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import pytest

from dstui.base.dataclass import dataclass


def make(decorator: Any) -> type:
    @decorator(frozen=True, slots=True, kw_only=True)
    class Job:
        """A value with every kind of field."""

        name: str
        ranks: tuple[int, ...] = ()
        notes: list[str] = dataclasses.field(default_factory=list, repr=False, compare=False)

    return Job


OURS, THEIRS = make(dataclass), make(dataclasses.dataclass)


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any = None


@dataclass
class Counter:
    value: int = 0
    name: str = dataclasses.field(default="", kw_only=True)
    text: str = dataclasses.field(init=False)
    unit: str = dataclasses.field(init=False, default="s")

    def __post_init__(self) -> None:
        self.text = f"{self.name}{self.value} {self.unit}"


@dataclass(frozen=True)
class Single:
    value: Any


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True)
class Version:
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())

    def __repr__(self) -> str:
        return self.text


def test_values_equal_what_the_standard_library_says() -> None:
    cases: list[dict[str, Any]] = [{"name": "a"}, {"name": "a", "notes": ["x"]}, {"name": "a", "ranks": (1,)}, {"name": "b"}]
    for one in cases:
        assert repr(OURS(**one)) == repr(THEIRS(**one))
        for another in cases:
            assert (OURS(**one) == OURS(**another)) == (THEIRS(**one) == THEIRS(**another))
            assert len({OURS(**one), OURS(**another)}) == len({THEIRS(**one), THEIRS(**another)})
    assert OURS(name="a") != THEIRS(name="a")
    for wrong in ({}, {"name": "a", "rank": 1}):
        with pytest.raises(TypeError):
            OURS(**wrong)


def test_functions_of_dataclasses_and_copies_work() -> None:
    pair = Pair(1, (2, 3))
    assert dataclasses.replace(pair, left=4) == Pair(4, (2, 3))
    assert dataclasses.asdict(pair) == {"left": 1, "right": (2, 3)}
    assert pickle.loads(pickle.dumps(pair)) == copy.copy(pair) == copy.deepcopy(pair) == pair
    assert Pair.__match_args__ == ("left", "right")
    assert not hasattr(pair, "__dict__")


def test_special_classes() -> None:
    assert Counter(1) == Counter(1) != Counter(2)
    assert Counter(1, name="n").text == dataclasses.replace(Counter(1), name="n").text == "n1 s"
    with pytest.raises(TypeError, match=r"Counter\.__init__"):
        Counter(1, "n")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter(1))
    assert Single((1, 2)) != Pair(1, 2)
    assert len({Single("a"), Single("a"), Single("b")}) == 2
    assert Nothing() == Nothing() and len({Nothing(), Nothing()}) == 1
    assert Version("V1") == Version("v1") and len({Version("V1"), Version("v1")}) == 1 and repr(Version("V1")) == "V1"


def test_nothing_assigns_to_a_frozen_value() -> None:
    """In development mode the decorator is the standard library's, which raises an error there."""
    program = """
import sys
from dstui.base.dataclass import dataclass
import dataclasses
assert dataclass is dataclasses.dataclass
from dstui.cli import main
sys.exit(main(["--headless", "quickstart", "--dry-run"]) or main(["check", "quickstart"]))
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Nothing was started" in done.stdout + done.stderr
