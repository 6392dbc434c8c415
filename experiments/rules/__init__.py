"""The command `rlflow rules`: one module for each subcommand, imported when the subcommand is used."""
