"""Who acts: one pure function of what is known of an agent. Arranged after run-time assurance practice (ASTM F3269,
Simplex): input manager -> policy -> shield -> monitor -> base policy -> fail-safe."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Branch(IntEnum):
    """In the order of rank."""

    OVERRIDE = 0
    IDLE = 1
    POLICY = 2
    SHIELD = 3
    BASE_POLICY = 4
    FAIL_SAFE = 5

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-" if self is Branch.FAIL_SAFE else " ")


def choose(
    ordered: np.ndarray, alive: np.ndarray, usable: np.ndarray, trusted: np.ndarray, policy: np.ndarray,
    changed: np.ndarray, base: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The branch of every agent [N], from booleans [N]: a human ordered something that can be done; the agent takes
    part; there is an observation to act on; the monitor trusts the policy; the policy's action (after the shield) is
    allowed; the shield changed it; the base policy's action is allowed."""
    learned = np.where(changed, Branch.SHIELD, Branch.POLICY)
    automatic = np.where(
        usable & trusted & policy, learned, np.where(usable & base, Branch.BASE_POLICY, Branch.FAIL_SAFE)
    )
    return np.where(ordered, Branch.OVERRIDE, np.where(alive, automatic, Branch.IDLE))
