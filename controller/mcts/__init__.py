"""Gumbel tree search with a learned prior: the controller `mcts`."""
