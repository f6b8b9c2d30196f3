"""The Plan: one YAML document that the TUI edits, headless runs, and everything else is a pure function of."""
