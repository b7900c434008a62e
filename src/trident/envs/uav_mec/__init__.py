"""UAV-MEC: a fleet of UAVs that serve users on the ground as edge computers."""

from trident.envs.uav_mec.config import UavMecConfig
from trident.envs.uav_mec.env import VARIANTS, UavMec

__all__ = ["VARIANTS", "UavMec", "UavMecConfig"]
