"""Recognise: from lines to findings. Pure."""
