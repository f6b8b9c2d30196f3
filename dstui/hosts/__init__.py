"""Reaching other hosts: ssh command lines with deadlines, what their failures mean, sending a script that needs nothing there."""
