"""`dstui tune`: the best candidates of the forecast, measured by short jobs one after the other, and the Plan that won.

candidates    what to try next: a pure function of the Plan and of what was measured so far
outputs       where the short jobs write, so that no checkpoint of the user's is touched
trial         one short job: started, watched by the engine's hook, stopped after the steps that are needed
record        tune.json: what was measured, so that a tune can be left and resumed
session       the loop over candidates within the budget
report        the table, and the object that --json prints
"""
