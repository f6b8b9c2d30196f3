"""What every layer uses: sanitised text, limits, regular files, output and the argument parser."""
