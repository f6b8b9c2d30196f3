"""Signatures of checkpoints that cannot be loaded or written."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

SIGNATURES = (
    Signature(
        "CKPT-WORLD",
        "root",
        "The checkpoint belongs to another number of ranks",
        "ZeRO's optimizer states are partitioned over the ranks that saved them.",
        (
            rx("DP world size of", r"used a DP world size of \d+ but the current world size is \d+"),
            "Automatic adjustment of ZeRO's optimizer state",
        ),
        (
            "Resume with as many ranks",
            Remedy(
                "After ds_to_universal: load it as a universal checkpoint", patches.setting("deepspeed.checkpoint.load_universal", True)
            ),
        ),
        "ls CHECKPOINT/global_step*/*zero_pp_rank_* | wc -l: the number of ranks that saved it; dstui checkpoint PATH says it, too.",
        alike=("CKPT-SHAPE",),
    ),
    Signature(
        "CKPT-SHAPE",
        "root",
        "The checkpoint does not fit the model",
        "The model or its arguments have changed since it was saved.",
        (
            "in loading state_dict for",
            rx("size mismatch for", r"size mismatch for \S+:"),
            rx("Shape mismatch in layer", r"Shape mismatch in layer .*Received saved weight"),  # Keras
            rx("Missing key(s) in state_dict", r"Missing key\(s\) in state_dict"),
            rx("value from checkpoint", r"value from checkpoint \(.*\) is not equal to"),
            rx(
                "loaded state dict",
                r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of parameter groups)",
            ),
            rx("this looks incorrect", r"set a tensor of shape .* \(which has shape .*this looks incorrect"),
            rx("checkpointvalue", r"class input value \S+ and checkpointvalue"),
        ),
        ("Build the model as it was when the checkpoint was saved, or load without strict",),
        sure=False,
        alike=("MODEL-LOAD", "Z3-SIZE0"),
        source="torch/nn/modules/module.py:load_state_dict",
        confirm="dstui checkpoint PATH: what the folder holds, against the names and shapes in the message.",
    ),
    Signature(
        "CKPT-WEIGHTS-ONLY",
        "root",
        "torch.load refuses the checkpoint's objects",
        "PyTorch 2.6 and newer load plain weights only, and DeepSpeed's checkpoints hold more.",
        ("Weights only load failed", rx("weights_only", r"weights_only.{0,40}(?:Unsupported|not an allowed) global")),
        (
            "Upgrade DeepSpeed",
            Remedy(
                "Only for files that you trust (they can run code): load all objects",
                patches.environment("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"),
            ),
        ),
        explains=("MODEL-LOAD",),
        alike=("MODEL-LOAD",),
        source="torch/serialization.py:load",
        confirm="python -c 'import torch; print(torch.__version__)': from 2.6 on torch.load reads weights only.",
    ),
    Signature(
        "CKPT-DISK",
        "root",
        "The disk was full: a checkpoint or another file could not be written",
        "Disk, inodes or quota are used up; a checkpoint with optimizer states takes 14 to 18 bytes per parameter.",
        (
            rx("[Errno ", r"\[Errno (?:28|122)\]"),
            "PytorchStreamWriter failed writing file",
            "file write failed",
            "Disk quota exceeded",
            rx("Error while serializing", r"Error while serializing.*(?:os error (?:28|122)|No space|StorageFull|[Qq]uota)"),
            rx("unexpected pos", r"unexpected pos \d+(?: vs \d+|\s*$)"),
            "basic_ios::clear: iostream error",
            rx("phemeral", r"(?:low on resource: ephemeral-storage|ephemeral local storage usage exceeds)"),
            rx("No space left on device", r"(?:OSError|IOError|RuntimeError|write|error).*No space left on device"),
        ),
        ("Free space, keep fewer checkpoints (save_total_limit), or save elsewhere",),
        "df -h, df -i and the quota of the target.",
        alike=("CKPT-PERM", "SIGBUS-SHM"),
    ),
    Signature(
        "CKPT-PERM",
        "root",
        "A folder cannot be written",
        "It belongs to another user, or the file system is mounted read-only on this host.",
        ("PermissionError", "Read-only file system", "EACCES: permission denied", rx("[Errno ", r"\[Errno (?:13|30)\]")),
        ("Choose a folder that every host can write to",),
        "touch FOLDER/x, on the host that failed.",
        explains=("CONTAINER",),
        sure=False,
        alike=("CKPT-DISK", "RACE-FS"),
    ),
    Signature(
        "SAVE-FOLDER",
        "root",
        "The folder that a file is to be saved in does not exist",
        "Nothing creates it on this host, or its path is relative to another folder than the one that the ranks start in.",
        (rx("Parent directory", r"RuntimeError: Parent directory .+ does not exist"),),
        ("Let rank 0 create it before the training: os.makedirs(FOLDER, exist_ok=True)",),
        "ls -d FOLDER, from the folder that the ranks start in, on the host that failed.",
        alike=("CKPT-PERM",),
        answer="USER-PY",
    ),
    Signature(
        "CKPT-FOLDER",
        "root",
        "This folder is no DeepSpeed checkpoint",
        "A checkpoint is the folder that holds the file `latest`, or with a tag the folder of that tag below it (global_step100); "
        "it has *_model_states.pt and, at the stages 1 to 3, *_optim_states.pt.",
        (
            "Unable to find 'latest' file",
            rx("can't find", r"can't find \S*(?:model_states|optim_states)\S* files in directory"),
            "is not a zero checkpoint",
        ),
        ("Give zero_to_fp32.py the folder that save_checkpoint got, not that of a tag; dstui checkpoint PATH says what a folder is",),
        "ls of the folder: latest, global_step*",
        alike=("CKPT-LATEST", "CKPT-WORLD"),
        source="deepspeed/utils/zero_to_fp32.py:get_fp32_state_dict_from_zero_checkpoint",
        explains=("CKPT-NONE",),
    ),
    Signature(
        "CKPT-NONE",
        "root",
        "There is no checkpoint to resume from in that folder",
        "The Trainer looks for checkpoint-N below its output folder, and with DeepSpeed for global_step* in it.",
        (rx("valid checkpoint", r"(?:Can't find a valid checkpoint at|No valid checkpoint found in output directory)"),),
        ("Give resume_from_checkpoint the folder checkpoint-N that holds global_step*, or leave it out for a run from the start",),
        "ls of the folder: checkpoint-*, and global_step* in it",
        sure=False,
        alike=("CKPT-LATEST", "MODEL-FILES"),
        answer="CKPT-FOLDER",
    ),
    Signature(
        "CKPT-LATEST",
        "quiet",
        "There was no checkpoint to resume from: training began from the start",
        "load_checkpoint only warns if the folder has no file `latest`, and returns (None, None).",
        ("Unable to find latest file at",),
        ("Give the folder that holds `latest`, or the tag of the checkpoint", "Let the script stop if load_checkpoint returns None"),
        "ls of the folder: latest, global_step*",
        alike=("CKPT-FOLDER",),
        source="deepspeed/runtime/engine.py:load_checkpoint",
    ),
    Signature(
        "FRESH-START",
        "benign",
        "The program itself says that it begins from the start",
        signs=("will not load any checkpoints and will start from random", "raining from scratch"),
        explains=("CKPT-LATEST",),
    ),
    Signature(
        "FULL-CHECKPOINT",
        "benign",
        "Transformers saves the whole checkpoint where the 16-bit weights were not gathered",
        signs=("Saving the full checkpoint instead, use zero_to_fp32.py",),
        explains=("GATHER16",),
    ),
    Signature(
        "GATHER16",
        "quiet",
        "The 16-bit weights were not gathered: the saved model is a stub",
        "ZeRO 3 writes complete weights only if it is configured to.",
        (
            # Printed configurations contain the key too: only a message that nothing was saved counts.
            rx(
                "stage3_gather_16bit_weights_on_model_save",
                r"(?i)not save.{0,200}stage3_gather_16bit_weights_on_model_save|stage3_gather_16bit_weights_on_model_save=false\. saving",
            ),
        ),
        (
            Remedy(
                "Gather them when saving", patches.setting("deepspeed.zero_optimization.stage3_gather_16bit_weights_on_model_save", True)
            ),
            "zero_to_fp32.py consolidates the weights of the existing checkpoint",
        ),
        "ls -lh of the checkpoint: a pytorch_model.bin of a few hundred kilobytes.",
        source="deepspeed/runtime/engine.py:save_16bit_model",
    ),
)
