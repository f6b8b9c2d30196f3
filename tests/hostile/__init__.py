"""Generated hostile input, and checks of the commands that read it.

values    texts, numbers and structures that are often forgotten
plans     Plans, configurations, YAML and recorded machines made of them
jobs      tampered job folders that look like another user's
words     command lines, with the files that they name
forked    runs commands by the thousand, within limits
runner    runs the commands of many seeds, and checks how they end
"""
