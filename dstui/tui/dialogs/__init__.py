"""Dialogs: questions, prompts, the help, the finder."""
