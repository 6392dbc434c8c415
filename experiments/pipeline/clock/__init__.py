"""The stages that time: graphs and kernels of a run, and its last measurement."""
