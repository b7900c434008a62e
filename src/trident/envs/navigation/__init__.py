"""Agents drive to their goals past obstacles and each other."""

from trident.envs.navigation.env import VARIANTS, Navigation, NavigationConfig

__all__ = ["VARIANTS", "Navigation", "NavigationConfig"]
