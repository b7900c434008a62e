"""Environments: one package each, with the same file names in all of them."""
