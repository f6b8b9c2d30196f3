"""Files that people have, opened as Plans; the files that a Plan names, and whether its interpreter may be asked."""
