"""Reason: from findings to a verdict, which separates causes from consequences. Pure.

Every hit has a role, and roles come before time: a consequence of another rank's death is never the cause; a symptom (a rank waits for
others) is the cause only if nothing better is known; and of real causes the first wins, with the others reported beside it. What follows a
stop is a consequence of the stop; a stop that follows a failure is a consequence of the failure. Nothing is guessed: if the text does not
show it, there is no cause and no rank.
"""
