"""The signatures, by topic. A new one is one entry in one table, and one line in the tests' samples."""

from __future__ import annotations

from dstui.diagnosis.signature import Signature
from dstui.diagnosis.signatures import (
    accelerate,
    accelerators,
    checkpoints,
    communication,
    configuration,
    consequences,
    endings,
    gpus,
    hubs,
    imports,
    install,
    job_scripts,
    launching,
    memory_limits,
    models_and_data,
    schedulers,
    training,
    zero,
)

ALL: tuple[Signature, ...] = tuple(
    signature
    for area in (
        memory_limits,
        accelerators,
        imports,
        install,
        launching,
        gpus,
        job_scripts,
        schedulers,
        configuration,
        accelerate,
        communication,
        models_and_data,
        hubs,
        training,
        zero,
        checkpoints,
        endings,
        consequences,
    )
    for signature in area.SIGNATURES
)
BY_ID: dict[str, Signature] = {signature.id: signature for signature in ALL}
