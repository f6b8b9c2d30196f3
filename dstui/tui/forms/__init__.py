"""Editing a Plan: steps, forms, preview, checks, review."""
