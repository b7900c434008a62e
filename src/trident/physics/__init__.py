"""Laws that environments are made of."""
