"""The graph encoder: a computation graph as one vector."""
