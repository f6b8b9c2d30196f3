"""Packages that training scripts import and that start no engine by themselves: a loop that uses only these hides nothing."""

from __future__ import annotations

import sys

FRAMEWORKS = ("deepspeed", "accelerate", "transformers", "trl", "lightning", "pytorch_lightning")
"""Recognised by the calls of the script."""
LIBRARIES = (
    "torch torchvision torchaudio torchtext torchdata torchmetrics torchinfo torch_optimizer lion_pytorch bitsandbytes apex "
    "flash_attn xformers triton numba numpy scipy pandas sklearn skimage matplotlib seaborn PIL cv2 imageio albumentations "
    "kornia einops timm peft tokenizers datasets evaluate huggingface_hub safetensors sentencepiece tiktoken nltk sacrebleu "
    "rouge_score regex h5py pyarrow networkx gymnasium gym tqdm rich yaml toml tomli omegaconf hydra dotenv absl click "
    "typer fire simple_parsing ml_collections pydantic attr attrs loguru termcolor colorama tabulate psutil pynvml requests "
    "wandb tensorboard tensorboardX mlflow comet_ml neptune optuna jsonlines orjson ujson soundfile librosa packaging "
    "typing_extensions six future setuptools pkg_resources "
)
KNOWN = frozenset({*FRAMEWORKS, *LIBRARIES.split(), *sys.stdlib_module_names})
"""Top-level names of imports that are never modules of the script's own."""
