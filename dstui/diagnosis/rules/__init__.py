"""The rules of the verdict, by what they look for. Each gets the case and gives a verdict, or None for the next rule."""
