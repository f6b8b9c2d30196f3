"""What is read in: other people's files and scripts, made into what a Plan says."""
