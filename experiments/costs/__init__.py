"""The command `rlflow costs`: its parser, and modules that are imported when a subcommand is used."""
