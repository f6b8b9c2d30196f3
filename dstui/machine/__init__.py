"""The Machine: GPUs and their links, host and software as a snapshot in which every fact may be unknown, with the reason.

`snapshot` has the types, `probe` examines this machine, `recorded` reads a file instead. `nvml`, `host` and `software` run as child
processes. They are plain Python 3.8 without imports of dstui, so that they can be sent to other hosts.
"""
