"""DeepSpeed's configuration: what its parser, the engine or the Trainer refuses."""

from __future__ import annotations

from dstui.run.diagnosis import patches
from dstui.run.diagnosis.signature import Remedy, Signature, rx

CHECK = "dstui check PLAN says it before anything is started"

SIGNATURES = (
    Signature(
        "BATCH-ASSERT",
        "root",
        "The batch sizes contradict each other",
        "train_batch_size must be the micro-batch times the accumulation steps times the number of ranks; a world size of 1 means "
        "that no launcher was used.",
        ("Check batch related parameters. train_batch_size is not equal",),
        (Remedy("Leave out train_batch_size: DeepSpeed computes it", patches.batch_from_micro), CHECK),
    ),
    Signature(
        "BATCH-MISSING",
        "root",
        "The configuration has no batch size",
        "DeepSpeed needs train_batch_size or train_micro_batch_size_per_gpu.",
        ("Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",),
        (Remedy("Set a micro-batch of 1", patches.setting("deepspeed.train_micro_batch_size_per_gpu", 1)), CHECK),
    ),
    Signature(
        "AUTO-UNRESOLVED",
        "root",
        'An "auto" in the configuration was left for nobody to fill in',
        'Only the Trainer and accelerate replace "auto"; deepspeed.initialize compares the word with a number.',
        (
            rx(
                "not supported between instances of",
                r"'[<>]=?' not supported between instances of '(?:str' and '(?:int|float)|(?:int|float)' and 'str)'",
            ),
            rx("Input should be a valid", r"Input should be a valid (?:integer|number|boolean).*input_value='auto'"),
        ),
        (Remedy('Drop every "auto", and set a micro-batch of 1', patches.no_auto), CHECK),
    ),
    Signature(
        "UNKNOWN-KEY",
        "root",
        "DeepSpeed does not take a key of the configuration, or its value",
        "Sections such as zero_optimization refuse what they do not know.",
        (
            rx("validation error", r"validation errors? for (?:DeepSpeed|HybridEngine|Zero|FP16|BF16)\w*"),
            "Extra inputs are not permitted",
            rx("Input should be 0, 1, 2", r"Input should be 0, 1, 2(?:,| or) 3"),
        ),
        (Remedy("ZeRO has the stages 0 to 3", patches.allowed_stage), CHECK),
    ),
    Signature(
        "DUP-KEY",
        "root",
        "A key stands twice in the configuration",
        "DeepSpeed refuses JSON objects with the same key twice.",
        ("Duplicate keys in DeepSpeed config",),
        ("Remove one of the two", CHECK),
    ),
    Signature(
        "BOTH-PRECISION",
        "root",
        "fp16 and bf16 are both enabled",
        "DeepSpeed trains in one of them.",
        (
            rx(
                "cannot be simultaneously enabled",
                r"(?:bf16|bfloat16|fp16) and (?:bf16|bfloat16|fp16) modes cannot be simultaneously enabled",
            ),
        ),
        (Remedy("Keep bf16", patches.without("deepspeed.fp16")), Remedy("Keep fp16", patches.without("deepspeed.bf16")), CHECK),
    ),
    Signature(
        "OPT-SCHED-NAME",
        "root",
        "DeepSpeed has no optimizer or scheduler of that name",
        "Its own schedulers are WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest.",
        ("is not a supported DeepSpeed Optimizer", "does not recognize LR scheduler"),
        (Remedy("Take the scheduler that is meant", patches.known_scheduler), CHECK),
    ),
    Signature(
        "CONFIG-ASSERT",
        "root",
        "Two parts of the configuration exclude each other",
        "A feature needs another ZeRO stage or precision, or the key is gone in this version; the message names it.",
        (
            rx("master_weights_and_grads", r"(?i)(?:bf16|fp16)_master_weights_and_grads\S*.*(?:only supported|requires)"),
            rx("bf16_optimizer_states", r"bf16_optimizer_states\S*.*(?:only supported|requires)"),
            "Maximum supported ZeRO stage is",
            rx("has to be greater than", r"(?:[Bb]atch size|[Aa]ccumulation steps).*has to be greater than 0"),
            rx("has been removed", r"has been removed; '\S+' is no longer"),
            rx("only supported", r"AssertionError: .*(?:ZeRO|stage|offload).*only supported"),
            rx(
                "not supported",
                r"(?:Assertion|Value|NotImplemented)Error: .*(?:ZeRO|[Ss]tage \d|offload).*(?:not (?:supported|compatible)|incompatible)",
            ),
        ),
        (Remedy("Give ZeRO a stage", patches.stage_for_master_weights), CHECK),
        explains=("NO-SYNC",),
    ),
    Signature(
        "CONFIG-PATH",
        "root",
        "The configuration file is not where the ranks look for it",
        "Its path is relative to another folder, or it is missing on that host.",
        (
            "Expected a string path to an existing deepspeed config",
            rx("FileNotFoundError", r"FileNotFoundError: .*(?<![/']config)(?<!tokenizer)(?<!_config)(?<!\.index)\.(?:json|ya?ml)'"),
            rx("DeepSpeed requires --deepspeed_config", r"DeepSpeed requires --deepspeed_config"),
        ),
        ("Give the script {ds_config}: the path of the file that dstui writes",),
        explains=("DATA",),  # DeepSpeed tries the path as JSON first
        sure=False,
    ),
    Signature(
        "HF-MISMATCH",
        "root",
        "The configuration and the Trainer's arguments differ",
        "A value in the file must be that of TrainingArguments, in type too.",
        ("Please correct the following DeepSpeed config values that mismatch TrainingArguments",),
        ('Write "auto" where the Trainer knows the value', CHECK),
    ),
    Signature(
        "NO-SYNC",
        "root",
        "Gradient accumulation uses no_sync, which ZeRO 2 and 3 refuse",
        "DeepSpeed 0.16 and newer assert it; transformers before 4.46.3 call it.",
        ("no_sync context manager is incompatible with gradient partitioning",),
        (
            Remedy("No accumulation", patches.setting("deepspeed.gradient_accumulation_steps", 1)),
            "Upgrade transformers and accelerate",
        ),
    ),
    Signature(
        "DTYPE-UNSUPPORTED",
        "root",
        "This GPU has no arithmetic of that type",
        "bf16 needs compute capability 8.0 (Ampere) or newer.",
        (
            "Your setup doesn't support bf16/gpu",
            rx("is not supported", r"Type (?:bf16|fp16) is not supported"),
            "Bfloat16 is only supported on GPUs with compute capability",
            "CUBLAS_STATUS_NOT_SUPPORTED",
            rx("fp16 is not supported", r"fp16 is not supported"),
        ),
        (Remedy("Train in fp16", patches.to_fp16),),
        "nvidia-smi --query-gpu=name,compute_cap --format=csv",
    ),
    Signature(
        "PARALLEL-SIZE",
        "root",
        "The number of ranks does not divide into the parallel groups",
        "Tensor, pipeline, sequence and expert parallel sizes must divide the world size.",
        (
            rx("is less than", r"world_size \(\d+\) is less than \w+_size \d+"),
            rx(
                "divisible by",
                r"(?:world.?size|GPUs|ranks|parallel|heads?|[ste]p_size).{0,60}(?:not|must be|should be) (?:evenly )?divisible by",
            ),
            rx("divisible by", r"not divisible by (?:tensor|pipeline|sequence|expert|world|the number of)"),
        ),
        ("Take sizes whose product divides the number of ranks",),
    ),
    Signature(
        "CONFIG-UNREAD",
        "quiet",
        "No rank has read this Plan's ds_config.json: it was not trained as the Plan says, or without DeepSpeed altogether",
        "A script finds the file only through its arguments ({ds_config}), DSTUI_DS_CONFIG in its environment or, with accelerate, "
        "through what accelerate launch would have set. It succeeded with what it has itself.",
        (),
        ("Look how the script hands its configuration to deepspeed.initialize, the Trainer or Accelerator",),
        "The file was never opened between the launch and the end of the job.",
    ),
    Signature(
        "SILENT-TYPO",
        "quiet",
        "A key of the configuration was silently ignored",
        "At the top level DeepSpeed passes over what it does not know: what the key was meant to change did not change.",
        (),
        (CHECK,),
        "The key is in no release's list of keys.",
    ),
    Signature(
        "DEVICE-MAP-Z3",
        "root",
        "device_map or low_cpu_mem_usage cannot be combined with ZeRO 3",
        "ZeRO 3 places the parameters itself.",
        (
            rx("DeepSpeed Zero-3 is not compatible with", r"DeepSpeed Zero-3 is not compatible with"),
            rx("dispatched on the CPU or the disk", r"dispatched on the CPU or the disk(?!.*enough GPU RAM)"),
        ),
        ("from_pretrained without device_map and low_cpu_mem_usage",),
    ),
)
