"""Sweeps: one run for every combination of some settings, and what their figures say.

over.py      what `--over KEY=VALUES` stands for: lists, ranges and random draws, and their combinations
sweep.py     the folder of a sweep, and its points as units of work
point.py     one point: trains and plays as `rlflow optimise` does, and returns its figures
show.py      tables, plots and tests of the figures of finished points
command.py   `rlflow sweep`
"""
