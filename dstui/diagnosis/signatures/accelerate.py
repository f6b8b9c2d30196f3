"""Signatures of Accelerate's errors, each with the text of its own sources (accelerator.py, utils/dataclasses.py, utils/deepspeed.py)."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

GATHER = Remedy("Gather them when saving", patches.setting("deepspeed.zero_optimization.stage3_gather_16bit_weights_on_model_save", True))

SIGNATURES = (
    Signature(
        "GATHER16-RAISED",
        "root",
        "ZeRO 3 is not configured to gather the 16-bit weights for saving",
        "Accelerate's get_state_dict and save_model need complete weights, which the configuration does not gather.",
        ("Cannot get 16bit model weights because",),
        (
            GATHER,
            "zero3_save_16bit_model: true in the accelerate YAML",
            "Or save_checkpoint, and consolidate the weights later with zero_to_fp32.py",
        ),
        answer="GATHER16",
    ),
    Signature(
        "ACCELERATE-FIELDS",
        "root",
        "The accelerate YAML sets what a ds_config.json sets already",
        "With deepspeed_config_file none of gradient_accumulation_steps, gradient_clipping, zero_stage, offload_optimizer_device, "
        "offload_param_device, the two nvme paths, zero3_save_16bit_model and mixed_precision may be in the YAML. The message "
        "lists all nine, not those that are there.",
        ("the following accelerate config variables will be ignored",),
        ("Remove those of the nine that are in the YAML: dstui check FILE names them", "Set the same values in the ds_config.json"),
        confirm="dstui check FILE --integration accelerate",
    ),
    Signature(
        "ACCELERATE-DUMMY",
        "root",
        "Configuration and script disagree about who builds optimizer and scheduler",
        "An optimizer or scheduler in the ds_config.json needs a DummyOptim or DummyScheduler in the script; without it, a real one.",
        (
            rx("You cannot create a `Dummy", r"You cannot create a `Dummy(?:Optim|Scheduler)` without specifying"),
            rx("in the config file and in the code at the same time", r"You cannot specify an? (?:optimizer|scheduler) in the config file"),
            "You can only specify `accelerate.utils.DummyScheduler` in the code when using",
            "Either specify a scheduler in the config file or pass in the `lr_scheduler_callable`",
        ),
        (
            "An optimizer or scheduler in ds_config.json: accelerate.utils.DummyOptim and DummyScheduler in the script",
            Remedy("Leave both to the script", patches.without("deepspeed.optimizer", "deepspeed.scheduler")),
            "Without one: the script's own, or DummyScheduler(lr_scheduler_callable=…)",
        ),
        confirm="dstui check FILE --integration accelerate",
    ),
    Signature(
        "ACCELERATE-HIDDEN",
        "root",
        'Accelerate cannot fill "auto" in: the model has no hidden_size',
        "reduce_bucket_size, stage3_prefetch_bucket_size and stage3_param_persistence_threshold follow from model.config.hidden_size.",
        (
            rx("hidden_size", r"(?:has neither|Can find neither) `?(?:model\.config\.)?hidden_size`?"),
            rx("Can't find `model.config` entry", r"Can't find `model\.config` entry"),
        ),
        ('Replace "auto" by numbers for the keys that the message names: H·H, 0.9·H·H and 10·H for a hidden size H',),
        confirm="dstui check FILE --integration accelerate",
    ),
    Signature(
        "ACCELERATE-BATCH",
        "root",
        "Accelerate does not know the micro-batch",
        "It takes it from a data loader in the same prepare() call whose batch_size is a number.",
        ("requires you to pass at least one of training or evaluation dataloaders",),
        (
            Remedy("A micro-batch of 1 in the configuration", patches.known_micro_batch),
            "Pass the data loader to the same accelerator.prepare() as the model",
        ),
        confirm="dstui check FILE --integration accelerate",
    ),
    Signature(
        "ACCELERATE-AUTO",
        "root",
        'A key is "auto" that Accelerate does not fill in',
        "Other keys are legal as auto for the Trainer than for Accelerate; scheduler steps need a DummyScheduler with total_num_steps.",
        (rx("not found in kwargs", r"`\S+` not found in kwargs\. Please specify"),),
        (
            "Replace auto by a number for the key that the message names: dstui check FILE --integration accelerate lists all of them",
            Remedy('Drop every "auto", and set a micro-batch of 1', patches.no_auto),
        ),
        confirm="dstui check FILE --integration accelerate",
    ),
)
