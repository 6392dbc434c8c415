"""Sweeps: one run for every combination of some settings, and what their figures say.

over.py      what `--over KEY=VALUES` stands for: lists, ranges and random draws, and their combinations
sweep.py     the folder of a sweep, and its points as units of work
point.py     one point: trains and plays as `rlflow optimise` does, and returns its figures
series.py    the figures of finished points as arrays
findings.py  tests of these figures, in sentences
show.py      their tables and plots
command.py   `rlflow sweep`
"""
