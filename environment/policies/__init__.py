"""Policies that need no training: uniformly random play and greedy play."""
