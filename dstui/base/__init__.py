"""What every layer stands on: text made safe to show, limits, regular files, output and the parser of arguments."""
