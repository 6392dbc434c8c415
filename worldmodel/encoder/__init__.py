"""The graph encoder, which embeds a computation graph in one vector."""
