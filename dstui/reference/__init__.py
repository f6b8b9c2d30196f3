"""What must import torch, deepspeed, accelerate or transformers: run as a child process, by file path; imports nothing of dstui."""
