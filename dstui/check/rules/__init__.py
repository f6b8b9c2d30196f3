"""The rules, by topic.

This module imports nothing; `all_rules` imports them all. If a package imports its own modules, two threads that import the package and one
of its modules at the same time can deadlock.
"""
