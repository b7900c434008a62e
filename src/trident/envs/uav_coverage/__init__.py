"""Identical UAVs that share out a region and watch it together."""

from trident.envs.uav_coverage.config import CoverageConfig
from trident.envs.uav_coverage.env import VARIANTS, UavCoverage

__all__ = ["VARIANTS", "CoverageConfig", "UavCoverage"]
