"""Starting a job, looking after it, restarting and stopping it, and telling somebody that it has ended."""
