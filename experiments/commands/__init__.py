"""The commands of `rlflow`: each is a module with `add_options(parser)` and `run(options)`, here or in its own room.

`parser` lists them all. A module is imported when its command is used, and heavy ones not before it runs, so that
`rlflow --help` and `rlflow COMMAND --help` answer at once.
"""
