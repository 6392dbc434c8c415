"""Policies that need no training: uniformly random play, directed random play and greedy play."""
