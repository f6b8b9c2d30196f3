"""`dstui run -- COMMAND`: run a command with stand-ins for the launchers first on its PATH."""
