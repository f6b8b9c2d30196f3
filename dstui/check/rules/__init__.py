"""The rules, by topic.

Nothing is imported here: `all_rules` has them all. Of a package that imports its own parts, a part and the whole cannot be imported by two
threads at the same time: each would wait for the other.
"""
