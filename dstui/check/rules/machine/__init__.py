"""Rules about the machine: what its facts mean for a job. Importing this package registers all of them."""

from dstui.check.rules.machine import health, placement, variables

__all__ = ["health", "placement", "variables"]
