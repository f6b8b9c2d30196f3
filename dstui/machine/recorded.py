"""Read a Machine from a file: a snapshot of `dstui machine --save`, or a pasted `nvidia-smi topo -m`. A snapshot can be made anonymous."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, is_there, read_text
from dstui.base.limits import parse_json
from dstui.machine.codec import MissingField
from dstui.machine.snapshot import Machine
from dstui.machine.topology import islands
from dstui.site.installed import installed_site


def read_machine(path: Path) -> Machine:
    """Read the recorded Machine of a file, or one that the site names. Raises FileProblem."""
    site = installed_site().site if not is_there(path) else None
    named = site.machines.get(str(path)) if site is not None else None
    return replace(_read(Path(named) if named else path), recorded=True)


def _read(path: Path) -> Machine:
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return _from_json(text, path)
    from dstui.machine.paste import PasteError, machine_from_text  # its patterns take 5 ms to compile

    try:
        return machine_from_text(text, f"the matrix in {path.name}")
    except PasteError as error:
        raise FileProblem(f"{path}: {error}") from None


def _from_json(text: str, path: Path) -> Machine:
    try:
        data = parse_json(text)
    except ValueError as error:
        raise FileProblem(f"{path}: neither a snapshot nor a matrix: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("gpus"), list) or not isinstance(data.get("host", {}), Mapping):
        raise FileProblem(f"{path}: not a snapshot of a machine: it has no list `gpus`. `dstui machine --save FILE` writes one")
    try:
        machine = Machine.from_json({**data, "source": f"the snapshot {path.name}"})
    except MissingField as missing:
        where = missing.place or "it"
        raise FileProblem(
            f"{path}: {where} has no `{missing.field}`, or something else in its place: truncated, or edited by hand"
        ) from None
    return _with_islands(machine, path)


def _with_islands(machine: Machine, path: Path) -> Machine:
    """Add the islands that follow from the links, if the snapshot lacks them."""
    count = len(machine.gpus)
    for name, matrix in {"links": machine.links, **machine.p2p}.items():
        if matrix and (len(matrix) != count or any(len(row) != count for row in matrix)):
            raise FileProblem(f"{path}: {name} is not a matrix of {count} x {count}, the number of `gpus`")
    if machine.islands or not machine.links:
        return machine
    return replace(machine, islands=islands(machine.links, machine.p2p, machine.gpus))


def mask_names(data: Any, user: str | None = None, home: str | None = None) -> Any:
    """Replace the home folder by ~ and the user's name, as a whole word, by USER in plain data. Defaults are those of this process.

    The name root identifies nobody and stays.
    """
    user, home = user or _user(), home or os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody knows the user
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])") if user not in ("", "root") else None
    return _changed(data, home.rstrip("/"), word)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container with a user id that has no name
        return os.environ.get("USER", "")


def _changed(data: Any, home: str, word: re.Pattern[str] | None) -> Any:
    if isinstance(data, Mapping):
        return {key: _changed(value, home, word) for key, value in data.items()}
    if isinstance(data, list):
        return [_changed(value, home, word) for value in data]
    if not isinstance(data, str):
        return data
    text = re.sub(rf"{re.escape(home)}(?=/|$)", "~", data) if home not in ("", "/root") else data
    return word.sub("USER", text) if word else text
