"""What cost models warn of: once, and not as errors, since a result is worth having all the same."""

from __future__ import annotations

import warnings


class NoisyClockWarning(UserWarning):
    """Prices are less precise than asked for; each says how precise it is."""


class UnpricedWarning(UserWarning):
    """Rewrites are left alone whose graphs have no price."""


class NoisyClock:
    """Warns of a noisy clock, unless it has.

    Args:
      name: of the cost model.
    """

    def __init__(self, name: str) -> None:
        self._name, self._warned = name, False

    def warn(self, finding: str) -> None:
        """
        Args:
          finding: a sentence on how noisy it was.
        """
        if not self._warned:
            self._warned = True
            text = f"{self._name}: {finding} Rewards carry this noise (info['reward_noise']); this is said once."
            warnings.warn(text, NoisyClockWarning, stacklevel=2)
