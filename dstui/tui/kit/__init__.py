"""What every screen is made of: rows of text, their styles, keys, themes, the terminal. Nothing here knows of Plans or jobs."""
