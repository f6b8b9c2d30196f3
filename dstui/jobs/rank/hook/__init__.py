"""The folder that is put on the PYTHONPATH of a rank. It contains only sitecustomize.py."""
