"""The folder that a rank finds on its PYTHONPATH; it holds sitecustomize.py alone."""
