"""Errors a user can act on: one clear line, exit code 2, nothing lost."""


class TridentError(Exception):
    """Its message is one line that says what is wrong and what to do."""
