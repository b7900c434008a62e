"""Probe environments: tiny problems whose optimum, value and multiplier are known."""

from trident.envs.probes.one_shot import PROBES

__all__ = ["PROBES"]
