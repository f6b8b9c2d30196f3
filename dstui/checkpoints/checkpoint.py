"""Describe a DeepSpeed checkpoint: step, stage, world size, parameters, size, completeness. Nothing in it is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_file, is_folder, is_there, read_text
from dstui.base.text import sanitise
from dstui.checkpoints.torch_file import TorchFileProblem, as_mapping, count_elements, read_torch_file

MODEL = re.compile(r"(?:zero_pp_rank_(?P<rank>\d+)_)?mp_rank_(?P<mp>\d+)_model_states\.pt")
OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_(?P<mp>\d+)_optim_states\.pt")
MAX_FILES = 20_000
MAX_RANKS = 1_000_000
MAX_TENSORS = 1_000_000
"""Shapes that are counted: a pickle may name one group of them a million times."""
MAX_STATES = 1000
"""Names of a script's client state that are listed."""


@dataclass(frozen=True)
class Checkpoint:
    """One tag of a checkpoint folder."""

    folder: Path
    """The folder to give to DeepSpeed: it contains `latest` and the folder of the tag."""
    tag: str
    tags: tuple[str, ...] = ()
    """All tags of the folder, oldest first."""
    universal: bool = False
    """True if it was converted to a universal checkpoint, for any number of ranks."""
    step: int | None = None
    stage: int | None = None
    """The ZeRO stage; 0 if the optimizer is not sharded."""
    world_size: int | None = None
    """The data-parallel ranks that wrote it."""
    model_parallel: int | None = None
    parameters: int | None = None
    trainable: int | None = None
    size: int = 0
    """Bytes on disk of this tag."""
    files: int = 0
    deepspeed: str = ""
    precision: str = ""
    client_state: tuple[str, ...] = ()
    """Names of the state that the script saved with it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """The reasons why it is incomplete, as sentences."""
    strange: tuple[str, ...] = ()
    """Names in its pickles that no training run writes: they may run a program when they are loaded."""

    @property
    def path(self) -> Path:
        """The folder of the tag."""
        return self.folder / self.tag if self.tag else self.folder

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui checkpoint --json` documents."""
        return {
            "version": 1,
            "folder": str(self.folder),
            "tag": self.tag,
            "tags": list(self.tags),
            "complete": not self.problems,
            "problems": list(self.problems),
            "universal": self.universal,
            "step": self.step,
            "stage": self.stage,
            "world_size": self.world_size,
            "model_parallel": self.model_parallel,
            "parameters": self.parameters,
            "trainable": self.trainable,
            "bytes": self.size,
            "files": self.files,
            "deepspeed": self.deepspeed,
            "precision": self.precision,
            "client_state": list(self.client_state),
            "strange": list(self.strange),
        }


def read_checkpoint(path: Path, tag: str | None = None) -> Checkpoint:
    """Read a checkpoint: the folder with `latest`, or the folder of one tag. Raises FileProblem."""
    if not is_there(path):
        raise FileProblem(f"{path}: no such folder")
    if not is_folder(path):
        raise FileProblem(f"{path} is a file: name the folder of the checkpoint, which contains `latest`")
    if tag is None and _is_tag(path):
        return _read_tag(path.parent, path.name, ())
    tags = tuple(sorted((one.name for one in _entries(path) if is_folder(one) and _is_tag(one)), key=_natural))
    latest = _latest(path)
    if not tags and not latest:
        raise FileProblem(
            f"{path} is not a DeepSpeed checkpoint: neither `latest` nor a folder with *_model_states.pt is in it{_inside(path)}"
        )
    chosen = tag or latest or tags[-1]
    if chosen not in tags:
        named = "" if tag else "`latest` names "
        raise FileProblem(f"{path}: {named}{chosen}, which does not exist; available: {', '.join(tags) or 'no other'}")
    return _read_tag(path, chosen, tags)


def _latest(path: Path) -> str:
    for name in ("latest", "latest_universal"):
        with suppress(FileProblem):
            text = read_text(path / name).strip()
            if text and "/" not in text and text not in (".", ".."):
                return text
    return ""


def _inside(path: Path) -> str:
    """Name the newest checkpoints one level below, where the Trainer puts them."""
    found = [one.name for one in _entries(path) if is_file(one / "latest")]
    return f"; {', '.join(sorted(found, key=_natural)[-3:])} in it are" if found else ""


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())[:MAX_FILES]
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror}") from None


def _is_tag(path: Path) -> bool:
    with suppress(FileProblem):
        return any(MODEL.fullmatch(one.name) or OPTIMIZER.fullmatch(one.name) for one in _entries(path)) or is_folder(path / "zero")
    return False


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _read_tag(folder: Path, tag: str, tags: tuple[str, ...]) -> Checkpoint:
    here = folder / tag
    names = [one.name for one in _entries(here)]
    models, optimizers = _by_rank(MODEL, names), _by_rank(OPTIMIZER, names)
    files = list(_below(here))
    model, state, strange, problems = _read_pickles(here, files, models, optimizers)
    config = as_mapping(model.get("ds_config"))
    ranks = _whole(model.get("dp_world_size")) or _partitions(state)
    model_parallel = _whole(model.get("mp_world_size"))
    if universal := is_folder(here / "zero"):
        stage = _whole(as_mapping(config.get("zero_optimization")).get("stage"))
    else:
        stage = 3 if any(rank is not None for rank, _ in models) else _stage(state) if optimizers else 0 if models else None
        problems += _missing(models, optimizers, ranks, model_parallel or 1, stage)
    trained, frozen = _shapes(model.get("param_shapes")), _shapes(model.get("frozen_param_shapes"))
    sizes = list(_sizes(files))
    client_state = islice((name for name in model if isinstance(name, str) and name not in OWN), MAX_STATES)
    return Checkpoint(
        folder,
        tag,
        tags or (tag,),
        universal=universal,
        step=_whole(model.get("global_steps")),
        stage=stage,
        world_size=ranks,
        model_parallel=model_parallel,
        parameters=trained + frozen or _shapes(model.get("module")) or None,
        trainable=trained or None,
        size=sum(sizes),
        files=len(sizes),
        deepspeed=_word(model.get("ds_version"), 40),
        precision=_precision(config),
        client_state=tuple(_word(name, 100) for name in client_state),
        config=config,
        problems=tuple(problems),
        strange=tuple(sorted(strange)),
    )


def _read_pickles(
    here: Path, files: list[Path], models: Mapping[Any, str], optimizers: Mapping[Any, str]
) -> tuple[Mapping[Any, Any], Mapping[Any, Any], set[str], list[str]]:
    """Return the first model states and optimizer states of a tag, strange names in all its pickles, and the problems of reading them."""
    model, state = dict[Any, Any](), dict[Any, Any]()
    strange, problems = set[str](), list[str]()
    for path in _pickles(here, files):
        name = str(path.relative_to(here))
        try:
            found = read_torch_file(path)
        except TorchFileProblem as error:
            problems.append(f"{sanitise(name)}: {error}")
            continue
        strange.update(found.strange)
        if name in models.values():
            model = model or as_mapping(found.value)
        elif name in optimizers.values():
            state = state or as_mapping(as_mapping(found.value).get("optimizer_state_dict"))
    return model, state, strange, problems


OWN = frozenset(
    (
        *("module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "frozen_param_fragments", "shared_params"),
        *("lr_scheduler", "data_sampler", "random_ltd", "sparse_tensor_module_names", "skipped_steps", "global_steps", "global_samples"),
        *("dp_world_size", "mp_world_size", "checkpoint_parallel_dimensions", "ds_config", "ds_version", "universal_checkpoint_info"),
        *("loss_scaler", "num_experts"),
    )
)
"""Keys that DeepSpeed itself writes into a file of model states. The rest is the script's client state."""


def _by_rank(pattern: re.Pattern[str], names: list[str]) -> dict[tuple[int | None, int], str]:
    """Return (data-parallel rank or None, model-parallel rank) -> file."""
    found = {}
    for name in names:
        if match := pattern.fullmatch(name):
            rank = match["rank"]
            found[int(rank) if rank is not None else None, int(match["mp"])] = name
    return dict(sorted(found.items(), key=lambda item: (item[0][0] or 0, item[0][1])))


def _missing(
    models: Mapping[Any, str], optimizers: Mapping[Any, str], ranks: int | None, parallel: int, stage: int | None
) -> Iterator[str]:
    """Yield the missing files of ranks."""
    expected = ranks or 1 + max((rank for rank, _ in optimizers if rank is not None), default=-1)
    if not 0 <= expected * parallel <= MAX_RANKS:
        yield f"it names {expected} x {parallel} ranks, which is impossible"
        return
    for what, files in (("optimizer states", optimizers), ("model states", models)):
        sharded = files is optimizers or stage == 3
        if not files and (files is models or stage):
            yield f"no file of {what} at all"
        elif files and sharded:
            missing = [(rank, mp) for rank in range(expected) for mp in range(parallel) if (rank, mp) not in files]
            if missing:
                named = ", ".join(str(rank) for rank, _ in missing[:8]) + (" …" if len(missing) > 8 else "")
                yield f"the {what} of rank {named} are missing ({len(files)} of {expected * parallel} files)"
        elif files and len(files) < parallel:
            yield f"the {what} of {parallel - len(files)} model-parallel ranks are missing"


def _precision(config: Mapping[Any, Any]) -> str:
    enabled = (name for name in ("bf16", "fp16") if as_mapping(config.get(name)).get("enabled") is True)
    return next(enabled, "fp32" if config else "")


def _stage(state: Mapping[Any, Any]) -> int | None:
    value = state.get("zero_stage")
    args = getattr(value, "args", ())
    return _whole(args[0]) if args else _whole(value)


def _partitions(state: Mapping[Any, Any]) -> int | None:
    value = state.get("partition_count")
    return max(filter(None, map(_whole, value)), default=None) if isinstance(value, list) else _whole(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _shapes(value: Any) -> int:
    """Count the elements of all shapes or tensors in a mapping, or in a list of mappings."""
    groups = value if isinstance(value, list) else [value]
    return sum(count_elements(one) for one in islice((one for group in groups for one in as_mapping(group).values()), MAX_TENSORS))


def _pickles(here: Path, files: list[Path]) -> list[Path]:
    """Return every file that a tool could load: DeepSpeed's tools find theirs by patterns."""
    found = sorted((one for one in files if one.suffix == ".pt"), key=lambda path: _natural(path.name))
    if len(found) > MAX_FILES:
        raise FileProblem(f"{here}: more than {MAX_FILES:,} files of torch.save: too many to look at")
    return found


def _sizes(files: list[Path]) -> Iterator[int]:
    for one in files:
        with suppress(OSError):
            if not one.is_symlink():
                yield one.stat().st_size


def _below(here: Path) -> Iterator[Path]:
    """Yield the regular files below a folder, up to a few more than MAX_FILES."""
    with suppress(OSError):
        for count, one in enumerate(here.rglob("*")):
            if count > 2 * MAX_FILES:
                return
            if is_file(one):
                yield one


def _word(value: Any, most: int) -> str:
    """Return a text of a pickle, cut; "" for other values, whose representation might be endless."""
    return value[:most] if isinstance(value, str) else ""
