"""Connect to other hosts: ssh command lines with deadlines, the meaning of their failures, and the agent, which needs no installation."""
