"""Names of the columns of a graph observation, which the engine fills (taso_ext/src/features/features.hpp)."""

from __future__ import annotations

from taso_ext import NUM_DTYPES as NUM_DTYPES
from taso_ext import NUM_FEATURE_OPERATORS

FEATURES_VERSION = 1
"""Version of the columns: a model that was trained on another version cannot be used."""

# Column 0 is a category and is embedded, never used as a number; the others are of order 1. An extent or a size x is
# given as log(1 + x) / 8 or / 20, a time t in microseconds as log(1 + t) / 5.
NODE_FEATURES = (
    "operator",
    "log_time",
    "log_flops",
    "log_bytes",
    "fused",
    "num_weights",
    "log_weight_elements",
    "log_extent_last",
    "log_extent_second_last",
    "log_extent_third_last",
    "log_extent_fourth_last",
)
EDGE_FEATURES = (
    "dtype",
    "log_extent_last",
    "log_extent_second_last",
    "log_extent_third_last",
    "log_extent_fourth_last",
)
# Known operators, eight rows shared by all others (picked by their name), and one row for graph inputs.
NUM_OPERATORS = NUM_FEATURE_OPERATORS
GLOBAL_FEATURES = ("log_cost_ratio", "elapsed")
SPARSE_GLOBAL_FEATURES = ("phase", "log_measured_ratio")
"""Further columns if the reward measures every N > 1 steps: (steps mod N) / N, and ln(last measured / start cost)."""
