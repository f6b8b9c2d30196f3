"""The guided tour: a panel over the ordinary screens that names one key after the other, and waits until it has done its work."""
