"""Errors a user can act on: one clear line, an exit code, nothing lost."""

import errno
import traceback
from pathlib import Path

OURS = Path(__file__).parent
PACKAGES = ("site-packages", "dist-packages", "lib/python", "<")
"""What is in the names of files that are nobody's own here."""


class TridentError(Exception):
    """Its message is one line that says what is wrong and what to do."""

    code = 2
    """Exit code of the command line."""


class StorageError(TridentError):
    """What a run writes to is full, gone or read-only. The state up to the last checkpoint is safe."""

    code = 74


class HostLost(TridentError):
    """Another host of the run has died. The state up to the last checkpoint is safe."""

    code = 75


class UnexpectedError(TridentError):
    """A fault of trident itself, with everything about it in a file."""

    code = 70


STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}


def of_system(error: OSError) -> TridentError:
    """What the system refused, in one line."""
    kind = StorageError if error.errno in STORAGE else TridentError
    return kind(f"{error.filename or 'cannot write'}: {error.strerror or error}")


def one_line(error: BaseException) -> str:
    """Its type and message."""
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def users_place(error: BaseException) -> str | None:
    """FILE, line N, in FUNCTION: the innermost place that trident called and that is of no package."""
    found, inside = None, False
    for frame in traceback.extract_tb(error.__traceback__):
        ours = Path(frame.filename).is_relative_to(OURS)
        inside = inside or ours
        if inside and not ours and not any(part in frame.filename for part in PACKAGES):
            found = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return found
