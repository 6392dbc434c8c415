"""What is past: the rewrites that were carried out in an episode and that have not been legal since.

Which rewrites are legal does not say everything about a graph. The projections of an attention, for example, allow
nothing before their transposes are composed; what they allow then depends on whether they were merged before. A rewrite
that is offered again was undone, or its place is as it was, so that nothing of it has to be remembered.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def past_after(past: Any, taken: Any, legal: Any) -> Any:
    """Returns what is past after a step, as arrays or tensors of bool [..., A + 1].

    Args:
      past: before the step.
      taken: the single rewrites that the step carried out.
      legal: the actions that are legal after it.
    """
    return (past | taken) & ~legal


def past_of(legal: np.ndarray, singles: np.ndarray) -> np.ndarray:
    """Returns what is past in all states of episodes: bool [T + 1, B, A + 1].

    Args:
      legal: bool [T + 1, B, A + 1].
      singles: bool [T, B, A + 1], the single rewrites of every step.
    """
    past = np.zeros(legal.shape, bool)
    for t, taken in enumerate(singles):
        past[t + 1] = past_after(past[t], taken, legal[t + 1])
    return past
