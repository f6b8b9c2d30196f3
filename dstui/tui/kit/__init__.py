"""Building blocks of all screens: rows of text, styles, keys, themes, the terminal. Nothing here knows Plans or jobs."""
