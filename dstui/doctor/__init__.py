"""Readiness of a machine and of every host of a Plan: one check, one function, one test.

`ready.py` runs on each host and gathers what a Machine does not hold; `gather` brings Machines and that together as cases; the modules
of `checks` judge a case each; nothing is changed anywhere but for files of ours that are removed again.
"""
