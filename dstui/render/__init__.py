"""The generated files and commands of a Plan. Pure and deterministic."""
