"""The base of every layer: sanitised text, limits, regular files, output and the argument parser."""
