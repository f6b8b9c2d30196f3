"""Import files and scripts of other programs as Plans."""
