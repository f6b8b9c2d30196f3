"""Check whether this machine and every host of a Plan are ready: one check, one function, one test.

`ready.py` runs on each host and gathers facts that a Machine lacks. `gather` combines Machines and these facts into cases. The modules of
`checks` judge one case each. The doctor changes nothing except temporary files of its own.
"""
