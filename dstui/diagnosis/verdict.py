"""A verdict, before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass, field

from dstui.diagnosis.diagnosis import Confidence
from dstui.diagnosis.findings import Hit
from dstui.diagnosis.signature import Signature


@dataclass
class Verdict:
    """The answer. `signature` is None where there is none."""

    signature: Signature | None
    confidence: Confidence = "low"
    hits: list[Hit] = field(default_factory=list)
    rank: int | None = None
    others: list[str] = field(default_factory=list)
    sub: list[Hit] = field(default_factory=list)
    """Hits that the cause explains and that say more about it: the compiler's own error."""
