"""dstui's type conversions against those of both major versions of pydantic (DeepSpeed 0.14 uses the first)."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pydantic
import pydantic.v1
import pytest

from dstui.check.forms import fit
from dstui.plan.catalogue import Key


class Stage(int, Enum):
    zero, one, two, three = 0, 1, 2, 3


class Device(str, Enum):
    none, cpu, nvme = "none", "cpu", "nvme"


NUMBERS = [
    0,
    1,
    2,
    3,
    4,
    -1,
    5,
    1.0,
    0.0,
    2.0,
    1.5,
    -0.0,
    5e8,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
    2**63,
    2**70,
    -(2**64),
    10**400,
]
WORDS = [
    "",
    "auto",
    "1",
    "3",
    "3.0",
    "3.",
    "03",
    "+3",
    "-3",
    " 3 ",
    "1_000",
    "_1",
    "1__0",
    "1e3",
    "5e8",
    "0x10",
    "true",
    "TRUE",
    " yes",
    "yes",
    "on",
]
WORDS += ["off", "F", "n", "none", "CPU", "nvme", "nan", "inf", "Infinity", "-inf", "1.5", ".5", "5.", "1e", "1e400", "½", "1_0.0_1", "1E5"]
VALUES: list[Any] = [None, True, False, *NUMBERS, *WORDS, [], [1], ["a"], ["a", 1], ["z1"], ["zz"], {}, {"a": 1}]
KINDS: list[tuple[str, Any, dict[str, Any]]] = [
    ("bool", bool, {}),
    ("int", int, {}),
    ("float", float, {}),
    ("str", str, {}),
    ("path | null", Path | None, {}),
    ("choice", Stage, {"choices": (0, 1, 2, 3)}),
    ("choice", Device, {"choices": ("none", "cpu", "nvme")}),
    ("list[str]", list[str], {}),
    ("dict | null", dict[str, Any] | None, {}),
    ("bool | null", bool | None, {}),
    ("list[choice] | null", list[Literal["z1", "z3"]] | None, {"choices": ("z1", "z3")}),
    ("float", float, {"minimum": 0.0, "maximum": 1.0}),
    ("int", int, {"minimum": 1}),
    ("float", float, {"above": 0.0, "below": 1.0}),
]
BOUNDS = {"minimum": "ge", "maximum": "le", "above": "gt", "below": "lt"}


@pytest.mark.parametrize("old", [False, True], ids=["pydantic 2", "pydantic 1"])
@pytest.mark.parametrize(("kind", "annotation", "more"), KINDS, ids=lambda value: str(value) if isinstance(value, (str, dict)) else "")
def test_value_is_converted_as_by_pydantic(kind: str, annotation: Any, more: dict[str, Any], old: bool) -> None:
    library: Any = pydantic.v1 if old else pydantic
    limits = {BOUNDS[name]: limit for name, limit in more.items() if name in BOUNDS}
    model = library.create_model("Model", value=(annotation, library.Field(..., **limits)))
    for value in VALUES:
        found = fit(value, Key("value", kind, **more), old=old)
        try:
            taken = model(value=value).value
        except (ValueError, TypeError, OverflowError):
            assert not found.ok, f"{value!r} is refused by pydantic"
            continue
        assert found.ok, f"{value!r} is converted by pydantic to {taken!r}"
        if isinstance(taken, (bool, int, float, str)) and not isinstance(taken, Enum):
            assert found.value == taken or taken != taken, value  # noqa: PLR0124 - nan


def test_both_spellings_of_a_union_are_kept() -> None:
    either = Key("value", "str | int")
    model = pydantic.create_model("Model", value=(str | int, ...))
    for value in ("auto", 4, "4"):
        assert fit(value, either).value == model(value=value).value
