"""Report: from a verdict to a diagnosis, and a diagnosis as text. Pure."""
