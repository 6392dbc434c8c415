"""`WorldModel`: encoder, latent scaler, action table and MDN-RNN as one bundle that is saved and loaded together."""

from __future__ import annotations


class IncompatibleWorldModel(ValueError):
    """A stored world model does not fit the environment at hand (rule set, feature version, format)."""


class WorldModel:
    """The trained bundle; see `worldmodel.dream` and `worldmodel.latent_env` for what is played with it."""
