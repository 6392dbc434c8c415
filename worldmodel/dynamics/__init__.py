"""The MDN-RNN: what a rewrite does to the latent, the reward and the legal actions."""
