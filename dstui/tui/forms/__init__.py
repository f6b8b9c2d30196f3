"""The forms to edit a Plan: steps, fields, preview, checks, review."""
