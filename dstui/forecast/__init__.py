"""Bytes and seconds before anything runs: what a Plan needs on each GPU, in RAM and on disk, how fast it would be, and which plan is best.

Pure: a Plan, what is known of the model and a Machine in, values out. No file is read here; `dstui.modelfiles` reads them.
"""
