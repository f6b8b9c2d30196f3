"""Read a script together with the modules beside it that it imports, as one `Code`. Pure: a callback reads files, nothing is run."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable, Iterator

from dstui.adopt.pycode import Code, Import, NotPython, add_module, read_code
from dstui.base.dataclass import dataclass

FRAMEWORKS = ("deepspeed", "accelerate", "transformers", "trl", "lightning", "pytorch_lightning")
"""Recognised by the calls of the script."""
LIBRARIES = (
    "torch torchvision torchaudio torchtext torchdata torchmetrics torchinfo torch_optimizer lion_pytorch bitsandbytes apex "
    "flash_attn xformers triton numba numpy scipy pandas sklearn skimage matplotlib seaborn PIL cv2 imageio albumentations "
    "kornia einops timm peft tokenizers datasets evaluate huggingface_hub safetensors sentencepiece tiktoken nltk sacrebleu "
    "rouge_score regex h5py pyarrow networkx gymnasium gym tqdm rich yaml toml tomli omegaconf hydra dotenv absl click "
    "typer fire simple_parsing ml_collections pydantic attr attrs loguru termcolor colorama tabulate psutil pynvml requests "
    "wandb tensorboard tensorboardX mlflow comet_ml neptune optuna jsonlines orjson ujson soundfile librosa packaging "
    "typing_extensions six future setuptools pkg_resources "
)
KNOWN = frozenset({*FRAMEWORKS, *LIBRARIES.split(), *sys.stdlib_module_names})
"""Top-level names of imports that are never modules of the script's own."""


MAX_FILES, MAX_CHARACTERS = 40, 400_000
"""Limits on the imported files that are read. The rest is reported as unread."""

TextOf = Callable[[str], str | None]
"""Returns the text of a file by its path in the script's folder; None if it does not exist or cannot be read."""


@dataclass(frozen=True, slots=True)
class ScriptProgram:
    """A script and its own modules."""

    code: Code
    unread: tuple[tuple[int, str], ...] = ()
    """Its own modules that could not be read: the line of the import, and a few words."""
    foreign: tuple[tuple[int, str], ...] = ()
    """Imports of packages that are not known here, in the same form."""


def read_program(text: str, text_of: TextOf, package: str = "") -> ScriptProgram:
    """Read a script and follow its imports; `package` is the folder of its relative ones. Raises NotPython for the script itself."""
    return _Followed(text, text_of).program(package)


class _Followed:
    """Follows imports, each file once."""

    def __init__(self, text: str, text_of: TextOf) -> None:
        self.code, self.text_of = read_code(text), text_of
        self.unread: list[tuple[int, str]] = []
        self.foreign: list[tuple[int, str]] = []
        self.read = set[str]()
        self.characters, self.lines = len(text), text.count("\n") + 1

    def program(self, package: str) -> ScriptProgram:
        """Follow the imports of the script and of its modules."""
        waiting = [(package, one) for one in self.code.imports]
        for folder, one in waiting:  # the list grows meanwhile
            if not one.level and one.module.partition(".")[0] in KNOWN:
                continue
            found = False
            for path in _candidates(folder, one):
                before = len(self.code.imports)
                found |= self._add(path, one.line)
                waiting += [(posixpath.dirname(path), inner) for inner in self.code.imports[before:]]
            if not found:
                (self.unread if one.level else self.foreign).append(
                    (one.line, f"imports {'.' * one.level}{one.module}, which was not read")
                )
        return ScriptProgram(self.code, tuple(self.unread), tuple(self.foreign))

    def _add(self, path: str, line: int) -> bool:
        """Read a file. Return whether it exists."""
        if path in self.read:
            return True
        if (text := self.text_of(path)) is None:
            return False
        self.read.add(path)
        if len(self.read) > MAX_FILES or self.characters + len(text) > MAX_CHARACTERS:
            self.unread.append((line, f"imports {path}, which was not read: there is too much to read"))
            return True
        try:
            add_module(self.code, text, path, self.lines)
        except NotPython as problem:
            self.unread.append((line, f"imports {path}, which cannot be read: {problem.message}"))
        self.characters, self.lines = self.characters + len(text), self.lines + text.count("\n") + 1
        return True


def _candidates(folder: str, one: Import) -> Iterator[str]:
    """Yield the files in the script's folder that an import may run, including the packages on the way."""
    parts = [part for part in folder.split("/") if part] if one.level else []
    if one.level:
        if one.level - 1 > len(parts):
            return
        parts = parts[: len(parts) - (one.level - 1)]
    names = [name for name in one.module.split(".") if name]
    for depth in range(1, len(names) + 1):
        yield from _files([*parts, *names[:depth]])
    for name in one.names:
        yield from _files([*parts, *names, name])


def _files(parts: list[str]) -> Iterator[str]:
    stem = "/".join(parts)
    yield f"{stem}.py"
    yield f"{stem}/__init__.py"
