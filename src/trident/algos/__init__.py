"""Algorithms, one page each, and what they share."""
