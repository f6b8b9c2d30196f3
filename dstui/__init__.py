"""dstui: from "I have GPUs and a training script" to "DeepSpeed is training, and I can see every rank".

This module imports nothing: `dstui --version` costs little more than the interpreter.
"""

__version__ = "0.6.0"
