"""The stages that time: kernels and graphs of a run, the choice among its cheapest graphs, and the last measurement."""
