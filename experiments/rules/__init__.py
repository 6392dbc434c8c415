"""The command `rlflow rules`: one module for each of its subcommands, imported when it is used."""
