"""Errors a user can act on: one clear line, an exit code, nothing lost."""


class TridentError(Exception):
    """Its message is one line that says what is wrong and what to do."""

    code = 2
    """Exit code of the command line."""


class StorageError(TridentError):
    """What a run writes to is full, gone or read-only. The state up to the last checkpoint is safe."""

    code = 74


class UnexpectedError(TridentError):
    """A fault of trident itself, with everything about it in a file."""

    code = 70
