"""DeepSpeed's checkpoints: looked into without executing anything that is in them, and converted by DeepSpeed's own tools."""
