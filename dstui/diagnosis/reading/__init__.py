"""Read: from paths to lines, each once, with bounded memory."""
