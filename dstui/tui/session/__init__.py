"""The state of a session: the Plan with its history, the machine, findings, look-ups, drafts. Nothing here draws."""
