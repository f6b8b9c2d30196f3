"""Flows: tasks of several steps, such as questions in sequence, or a question, slow work and its result.

A flow is a plain object with the app and the session. It asks with dialogs, works in threads, and posts a message if the app has to act.
"""
