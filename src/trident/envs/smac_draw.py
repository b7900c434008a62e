"""One frame of a battle."""
