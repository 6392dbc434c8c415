"""Searches for fusion plans, and the learned advantages that guide one of them.

`samples` and `search` import no TensorFlow; `network`, `advantages` and `ppo` do.
"""
