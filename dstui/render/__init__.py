"""What is generated from a Plan: every file and command line. Pure and deterministic."""
