"""The tables and figures of the papers, beside what they print.

printed.py       the figures that the papers print, with their sources
players.py       the rows: TASO's search, the published agents with their faults mended, and ours
table1.py        properties of the graphs
table2.py        time and memory of an inference against TensorFlow; its units are in inference.py
table3.py        sweeps of the temperature of the dream
curves.py        figures of training and of search, step by step
convergence.py   learning without and with a world model, by real steps and by seconds
rewards.py       reward functions, and weights of time and memory
real_rewards.py  rewards by the clock, averaged over runs
runtime.py       run time of the graphs of each controller
heatmap.py       rules applied on each graph
opttime.py       optimisation time, with learning and without
"""
