"""`endtoend:<device>:timings=N`: prices of kernels that follow the timings of a few whole graphs."""
