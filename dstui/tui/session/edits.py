"""What an edit of the Plan is."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final


class _Unset(Enum):
    UNSET = "not written in the Plan"


UNSET: Final = _Unset.UNSET
"""As a value: the key is not in the Plan, or shall be taken out of it."""

Edit = tuple[str, Any]
"""A dotted path of the Plan and its new value, or UNSET."""
