"""Programs that import torch, deepspeed, accelerate or transformers. They run as child processes and import nothing of dstui."""
