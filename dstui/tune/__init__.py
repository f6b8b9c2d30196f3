"""`dstui tune`: measure the best candidates of the forecast by short jobs, one after the other, and propose the fastest Plan.

candidates    what to try next: a pure function of the Plan and the results so far
outputs       redirects the output of the short jobs, so that no checkpoint of the user's is touched
trial         one short job: started, watched through the engine's hook, stopped after enough steps
record        tune.json with the measurements, so that a tune can be interrupted and resumed
session       the loop over candidates within the budget
report        the table, and the object that --json prints
"""
