"""One file per visible thing."""
