"""The command `rlflow costs`: one module for each of its subcommands, imported when it is used."""
