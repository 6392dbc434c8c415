"""The names of the figures of accuracy, as tables show them."""

from __future__ import annotations

from worldmodel.accuracy.uncertainty import LEVELS

REWARD_RANKS, REWARD_ERROR = "reward: rank correlation", "reward: mean absolute error"
CHANGING_RANKS = "reward: rank correlation where the cost changes"
TOTAL_RANKS, TOTAL_ERROR = "total reward: rank correlation", "total reward: mean absolute error"
TOTAL_R2, TOTAL_RELATIVE = "total reward: R²", "total reward: error in standard deviations"
MASK_ERROR = "masks: wrong bits per wrong bit of copying"
CHANGE_F1, CHANGE_PRECISION, CHANGE_RECALL = "changed bits: F1", "changed bits: precision", "changed bits: recall"
COUNTS_PER_RULE, COUNTS_IN_ALL = "legal sites: share of rules counted exactly", "legal sites: counted exactly in all"
TERMINAL_PRECISION, TERMINAL_RECALL = "nothing left: precision", "nothing left: recall"
LATENT_ERROR = "latents: error per error of copying"
READ_COST_R2, READ_COST_RANKS = "cost read from the latent: R²", "cost read from the latent: rank correlation"
READ_MASK_ERROR = "masks read from the latent: wrong bits per wrong bit of copying"
READ_COUNTS = "legal sites read from the latent: share of rules counted exactly"
OF_REAL_LATENTS = " (real latents)"
"""The ending for figures that show the best that frozen heads can read."""
OF_COMPONENTS = " (as many principal components)"
"""The ending for what linear heads would read if latents were the principal components of what they should read."""
COVERAGE = {level: f"latents: coverage of {level:.0%} intervals" for level in LEVELS}
FITTED_HERE = ", fitted on the other half of these episodes"
"""The ending for coverages that would hold if the validation episodes came from the same kind of play."""
AT_FLOOR = "latents: share of dimensions at the floor of log σ"


def at_temperature(name: str, temperature: float) -> str:
    """Returns the name of a figure of dreams at temperature τ; a name without this ending is for τ = 0."""
    return f"{name} (τ = {temperature:g})"
