"""The entries of the table of gradients: how each operator passes cotangents on, one module for each kind."""
