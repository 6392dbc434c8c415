"""What runs the units of work of an experiment: here, in processes of this machine."""
