"""Run time and memory of other tools on the same networks."""
