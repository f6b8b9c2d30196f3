"""Rules about the machine: what its facts mean for a job. Importing this package registers all of them."""

from dstui.check.rules.machine import as_rules

__all__ = ["as_rules"]
