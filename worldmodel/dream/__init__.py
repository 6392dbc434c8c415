"""Rollouts inside the world model, and the real environment as a dream would show it."""
