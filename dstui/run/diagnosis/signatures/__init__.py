"""The signatures, by area. A new one is one entry in one table, and one line in the tests' samples."""

from __future__ import annotations

from dstui.run.diagnosis.signature import Signature
from dstui.run.diagnosis.signatures import communication, config, endings, install, launching, memory, training

ALL: tuple[Signature, ...] = tuple(
    signature for area in (memory, install, launching, config, communication, training, endings) for signature in area.SIGNATURES
)
BY_ID: dict[str, Signature] = {signature.id: signature for signature in ALL}
