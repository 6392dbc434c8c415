"""The MDN-RNN, which predicts what a rewrite does to the latent and the legal actions, and what reward it earns."""
