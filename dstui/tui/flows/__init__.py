"""What takes more than one step: several questions one after the other, or a question, slow work and what follows from it.

A flow is a plain object over the app and the session. It asks with dialogs, works in threads, and posts a message where the app has to act.
"""
