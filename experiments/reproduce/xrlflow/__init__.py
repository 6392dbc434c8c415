"""The tables and figures of X-RLflow (He et al. 2023), beside what the paper prints: `rlflow reproduce xrlflow-NAME`.

rows.py      the graphs and the rows
printed.py   what the paper prints
costs.py     Table 1: the cost model against the clock
steps.py     Table 3: candidates in a step
settings.py  Table 4: hyperparameters, from the preset
results.py   Table 2 and Figures 4 to 8: gains by the clock, rules, optimisation time, other input shapes
curve.py     all 1000 episodes on two small networks
compare.py   what candidate graphs and attention buy, against the other controllers
"""
