"""Read a `config.json`: numbers with bounds, flags, and a sentence for a missing value. Nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

MAX_NUMBER = 10**8
"""Larger than any width, depth, vocabulary or number of positions."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
Flag = bool | tuple[str, bool]
"""A switch of an architecture: fixed, or a key of the configuration with its default."""


class ModelProblem(Exception):
    """The model cannot be counted. Holds a sentence with the reason and the remedy."""


class Config:
    """One `config.json`, or a section of it."""

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self._values, self._where = values, where

    def number(self, *keys: str, default: int | None = None, least: int = 1, most: int = MAX_NUMBER) -> int:
        """Return the first of the keys with a value. Raises ModelProblem if there is none and no default, or it is out of bounds."""
        key = next((key for key in keys if self._values.get(key) is not None), None)
        if key is None:
            if default is None:
                raise ModelProblem(f"{self._where} has no {' or '.join(keys)}: it is incomplete, or not a model's")
            return default
        value = self._values[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ModelProblem(f"{self._where}: {key} is {str(value)[:40]!r}, but must be between {least} and {most}")
        return value

    def __contains__(self, key: str) -> bool:
        return isinstance(self._values.get(key), (list, tuple))

    def flag(self, flag: Flag) -> bool:
        """Return whether a switch is on. null in the file means its default."""
        if isinstance(flag, bool):
            return flag
        value = self._values.get(flag[0])
        return flag[1] if value is None else bool(value)

    def text(self, key: str) -> str:
        """Return a word; "" if there is none."""
        value = self._values.get(key)
        return value[:200] if isinstance(value, str) else ""

    def value(self, key: str) -> object:
        """Return a value as it is, to compare it."""
        return self._values.get(key)

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return a list of numbers, such as those of layers, without those out of bounds; empty if there is none."""
        value = self._values.get(key)
        whole = (v for v in value if isinstance(v, int) and not isinstance(v, bool)) if isinstance(value, list) else ()
        return tuple(v for v in whole if abs(v) <= MAX_NUMBER)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of words; empty if there is none."""
        value = self._values.get(key)
        return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()

    def length(self, key: str, default: int) -> int:
        """Return the length of a list."""
        value = self._values.get(key)
        return len(value) if isinstance(value, (list, tuple)) else default

    def size(self, key: str, default: int) -> int:
        """Return a number, or the first of a list or tuple (image sizes)."""
        value = self._values.get(key)
        return Config({key: value[0]}, self._where).number(key) if isinstance(value, list) and value else self.number(key, default=default)

    def language_part(self) -> Config:
        """Return the language model of a multimodal one: text_config, or the file itself in older releases.

        The head is tied if either place says so.
        """
        text = self.section("text_config") if isinstance(self._values.get("text_config"), Mapping) else self
        tied = self.flag(("tie_word_embeddings", False)) or text.flag(("tie_word_embeddings", False))
        return Config({**text._values, "tie_word_embeddings": tied}, text._where)

    def text_config(self) -> Config:
        """Return text_config. Whether the head is tied is read from the whole file, if it says. Raises ModelProblem."""
        part, tied = self.section("text_config"), self._values.get("tie_word_embeddings")
        return part if tied is None else Config({**part._values, "tie_word_embeddings": tied}, part._where)

    def tied_by_default(self) -> Config:
        """Return the same values for an architecture whose head is tied unless the file says otherwise."""
        return Config({**self._values, "tie_word_embeddings": self.flag(("tie_word_embeddings", True))}, self._where)

    def biased_by_default(self) -> Config:
        """Return the same values for an architecture whose attention has biases unless the file says otherwise."""
        return Config({**self._values, "attention_bias": self.flag(("attention_bias", True))}, self._where)

    def plain(self) -> Config:
        """Return the same values for a Gemma 4 without inputs of its layers, which other ones have unless their files say otherwise."""
        return Config(
            {**self._values, "hidden_size_per_layer_input": self.number("hidden_size_per_layer_input", default=0, least=0)}, self._where
        )

    def with_layers(self, layers: int) -> Config:
        """Return the same values with a number of layers, which some files give by their kinds."""
        return Config({**self._values, "num_hidden_layers": layers}, self._where)

    def named(self, kind: str) -> Config:
        """Return the same values as the configuration of a `model_type`, which older sections omit."""
        return Config({**self._values, "model_type": kind}, self._where)

    def part(self, key: str) -> Config:
        """Return a section, or an empty one if it is missing: its values are then the defaults."""
        value = self._values.get(key)
        return Config(value if isinstance(value, Mapping) else NOTHING, f"{self._where}, {key}")

    def has(self, key: str) -> bool:
        """Return whether there is a section."""
        return isinstance(self._values.get(key), Mapping)

    def first(self) -> Config:
        """Return the first section inside this one, or an empty one."""
        value = next((value for value in self._values.values() if isinstance(value, Mapping)), NOTHING)
        return Config(value, self._where)

    def section(self, key: str, defaults: Mapping[str, Any] = NOTHING) -> Config:
        """Return a section, completed by defaults. Raises ModelProblem if it is missing."""
        value = self._values.get(key)
        if not isinstance(value, Mapping):
            raise ModelProblem(f"{self._where} has no section {key}: it is incomplete, or not a model's")
        return Config({**defaults, **value}, f"{self._where}, {key}")

    @property
    def head(self) -> str:
        """The head of the model from the class in the file: CausalLM, MaskedLM, SequenceClassification, Model, …; or ""."""
        names = self._values.get("architectures")
        name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        return name.rpartition("For")[2] if "For" in name else "Model" if name.endswith("Model") and "LMHead" not in name else ""

    @property
    def labels(self) -> int:
        """The number of classes of a classification head."""
        labels = self._values.get("id2label")
        return len(labels) if isinstance(labels, Mapping) and labels else self.number("num_labels", "_num_labels", default=2)
