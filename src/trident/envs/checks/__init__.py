"""`check_env`: does an environment keep the contract?"""

from trident.envs.checks.values import check_env, find_doubts, find_faults

__all__ = ["check_env", "find_doubts", "find_faults"]
