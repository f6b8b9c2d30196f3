"""`dstui run -- COMMAND`: the command as it is, with stand-ins for the launchers first on its PATH."""
