"""What turns an algorithm and an environment into a run."""
