"""The guided tour: a panel on top of the ordinary screens that names one key after the other, and waits for its effect."""
