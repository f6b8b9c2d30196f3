"""Read shell text without running anything: which commands that start training it would run, with which words."""
