"""Units of work (an experiment, a setting, a seed): the executor that runs them and the files that keep their results.

local   the interface of an executor, and the executor that runs units in processes of this machine
units   units whose results are computed once and kept in `runs/reproduce` or beside the source
"""
