"""DeepSpeed's checkpoints: inspected without executing anything in them, and converted by DeepSpeed's own tools."""
