"""Forecast what a Plan needs on each GPU, in RAM and on disk, how fast it would be, and which Plan is best.

Pure: computed from a Plan, the facts of its model and a Machine. No file is read here; `dstui.facts.model_files` reads them.
"""
