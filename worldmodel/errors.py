"""Errors that the package reports to its users; without TensorFlow, so that commands can tell them from defects."""

from __future__ import annotations


class IncompatibleWorldModel(ValueError):
    """A stored world model does not fit the environment at hand (rule set, feature version, format)."""


class IncompatibleCheckpoint(ValueError):
    """A checkpoint does not fit the training that should resume from it."""


class IncompatibleEpisodes(ValueError):
    """Stored episodes are of another format."""


class NothingToLearn(ValueError):
    """Episodes hold nothing that a world model could learn from or be judged by."""


class CollectionStopped(RuntimeError):
    """A process that plays episodes was ended from outside."""


class IllegalAction(ValueError):
    """A policy takes an action that its state does not offer."""


class NonFiniteLoss(FloatingPointError):
    """A loss or gradient became NaN or infinite."""


class NonFinitePrediction(FloatingPointError):
    """A world model predicts NaN or infinity."""
