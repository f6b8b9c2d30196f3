"""The rules, by topic.

This module imports nothing; `plan_rules` and `all_rules` import them. If a package imports its own modules, two threads that import the
package and one of its modules at the same time can deadlock.
"""
