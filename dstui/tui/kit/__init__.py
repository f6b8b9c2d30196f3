"""Building blocks of every screen: rows of text, styles, keys, themes, the terminal. Nothing here knows Plans or jobs."""
