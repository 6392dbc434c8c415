"""The tables and figures of the papers, beside what they print.

printed.py   the figures that the papers print, with their sources
table1.py    properties of the graphs
table3.py    sweeps of the temperature of the dream
curves.py    figures of training and of search, step by step
heatmap.py   rules applied on each graph
opttime.py   optimisation time, with learning and without
"""
