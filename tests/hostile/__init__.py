"""Input that nobody should give, and what becomes of the commands that get it.

values    texts, numbers and structures that are often forgotten
plans     Plans, configurations, YAML and recorded machines made of them
jobs      job folders that somebody else has made, tampered with
words     command lines, with the files that they name
forked    runs commands by the thousand, within limits
runner    runs the commands of many seeds, and judges how they end
"""
