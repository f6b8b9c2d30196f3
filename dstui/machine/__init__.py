"""What is there: GPUs and their links, host, software, as a plain snapshot in which every fact may be unknown, with the reason.

`snapshot` holds the types, `probe` looks at this machine, `recorded` reads a file instead. `nvml`, `host` and `software` run in
child processes of their own, are plain Python 3.8 with nothing of dstui in them, and can therefore be sent to other hosts as they are.
"""
