"""What lies over the app for a moment: a question, a prompt, the help, the finder."""
