"""Units of work (an experiment, a setting, a seed): what runs them, and the files that keep their results.

local   the interface of an executor, and the one that runs units in processes of this machine
units   results that are computed once, in `runs/reproduce` or beside the source
"""
