"""The folder of a tour: its Plan, its runs, its progress, and the files that dstui otherwise keeps in the user's own folders."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, is_there, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.jobs.store.folder import JobFolder

PLAN = """\
# The Plan of the tour: dstui's quickstart with fewer steps. It is yours: change what you like.
version: 1
name: tour

job:
  module: dstui.examples.tour_tiny    # the quickstart's tiny GPT; a micro-batch over 16 is too much for the last rank
  args: [--steps, "100", --deepspeed_config, "{ds_config}"]

model:
  params: 4.1e+5
  sequence_length: 64

cluster:
  cpu_ranks: 2                        # on a machine without GPUs; one with GPUs takes all of them
  env: {OMP_NUM_THREADS: 1}

deepspeed:
  train_micro_batch_size_per_gpu: 8
  gradient_accumulation_steps: 1
  gradient_clipping: 1.0
  bf16: {enabled: true}
  zero_optimization: {stage: 2}
  optimizer:
    type: AdamW
    params: {lr: 1e-3, torch_adam: true}
"""


class TourFolder:
    """A tour on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.plan = self.path / "plan.yaml"
        self._progress = self.path / "tour.json"

    def prepare(self, *, again: bool = False) -> None:
        """Create the folder if there is none, and its Plan; `again`: start with the first step. Raises FileProblem."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if any(self.path.iterdir()) and self._read().get("folder") != self._identity():
                raise FileProblem(f"{self.path} is not a tour that was begun here: name another folder (dstui tour FOLDER)")
        except OSError as error:
            raise FileProblem(f"{self.path}: {error.strerror}") from None
        if again or not is_there(self.plan):
            write_atomic(self.plan, PLAN, replace=True)
        self.note("" if again else self.step)

    def enter(self) -> None:
        """Use the folder from now on: it holds everything that dstui stores for a user, and no site file applies."""
        os.chdir(self.path)
        for kind in ("state", "cache", "config", "data"):
            os.environ[f"XDG_{kind.upper()}_HOME"] = str(self.path / ".dstui" / kind)
        os.environ["DSTUI_SITE"] = ""

    @property
    def step(self) -> str:
        """The name of the current step of the tour; "" before the first."""
        return str(self._read().get("step", ""))

    def note(self, step: str) -> None:
        """Store the progress of the tour. Raises FileProblem."""
        write_atomic(self._progress, json.dumps({"version": 1, "step": step, "folder": self._identity()}) + "\n", replace=True)

    def _identity(self) -> list[int]:
        """Return values that only the creator of this folder can know: a folder that came with a repository is not the user's tour."""
        found = self.path.stat()
        return [found.st_dev, found.st_ino]

    def _read(self) -> dict[str, Any]:
        with suppress(FileProblem, ValueError):
            found = parse_json(read_text(self._progress))
            return found if isinstance(found, dict) else {}
        return {}

    def newest_job(self) -> JobFolder | None:
        """Return the job that was started last."""
        from dstui.jobs.store.index import folders

        return next(iter(folders()[::-1]), None)
