"""Open users' files as Plans, read the files that a Plan names, and decide whether its interpreter may run."""
