"""Settings that one engineer makes for a team: the site file with its locks and templates, and the layers of values beneath a Plan."""
