"""What a run will take, said before anything is allocated: first from shapes alone, then from the compiled round."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None

from trident.errors import TridentError
from trident.training.host import example_rollout
from trident.training.loop import RunState
from trident.training.settings import Setup

HEADROOM = 0.8
"""Share of the free memory that a run may plan with: compiling and drawing take some, too."""
CGROUPS = (("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
           ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"))  # fmt: skip
LEAST_ADDRESSES = 2**30
"""Address space without which XLA's threads and compiler end the process without a word."""
REMEDY = "lower --seeds, --algo.envs, --algo.steps or the sizes of networks and batches"


def check_state(setup: Setup, one_seed: RunState) -> None:
    """A TridentError if the state and the rollouts of all seeds cannot fit; `one_seed` are shapes."""
    rollout = jax.eval_shape(lambda algo: example_rollout(setup, algo), one_seed.algo)
    parts = {
        "replay": _bytes(one_seed.replay),
        "networks": _bytes(one_seed.algo),
        "environments": _bytes((one_seed.actors, one_seed.episodes)),
        "rollout": _bytes(rollout),
    }
    seeds, each = setup.settings.num_seeds, sum(parts.values())
    on_device = device_bytes()
    free = available_bytes() if on_device is None else on_device * min(setup.devices, jax.local_device_count())
    if free is None or seeds * each <= HEADROOM * free * jax.process_count():
        return
    largest = max(parts, key=lambda name: parts[name])
    remedy = "lower --algo.replay or --seeds" if largest == "replay" else REMEDY
    raise TridentError(
        f"{seeds:,} seed{'s' * (seeds > 1)} would need about {_size(seeds * each)}, {_size(each)} each, most of it "
        f"{largest} ({_size(parts[largest])}), but only {_size(free)} are free: {remedy}"
    )


def check_program(compiled: Any) -> None:
    """The same for what a compiled program takes while it runs, beside its arguments."""
    analysis, free = compiled.memory_analysis(), device_bytes() or available_bytes()
    need = getattr(analysis, "temp_size_in_bytes", 0) + getattr(analysis, "argument_size_in_bytes", 0)
    if free is not None and need > HEADROOM * free:
        raise TridentError(f"a round would need {_size(need)}, but only {_size(free)} are free: {REMEDY}")


def check_addresses() -> None:
    """XLA aborts where addresses are short."""
    left = _addresses_left()
    if left is not None and left < LEAST_ADDRESSES:
        raise TridentError(
            f"only {_size(left)} of address space are left (ulimit -v), compiling needs {_size(LEAST_ADDRESSES)}: "
            "raise the limit"
        )


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, in Python or in XLA."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


def available_bytes() -> int | None:
    """What the system can give this process, caches that it would drop included; None where it does not say."""
    known = [x for x in (_system(), *map(_cgroup, CGROUPS), _addresses_left()) if x is not None]
    return min(known, default=None)


def device_bytes() -> int | None:
    """What is free on the fullest of this host's devices; None where these share the system's memory."""
    if jax.default_backend() == "cpu":
        return None
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return min((s["bytes_limit"] - s["bytes_in_use"] for s in stats if "bytes_limit" in s), default=None)


def _system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup(files: tuple[str, str]) -> int | None:
    try:
        limit, used = (Path(file).read_text(encoding="ascii").strip() for file in files)
        return max(int(limit) - int(used), 0) if limit != "max" else None
    except (OSError, ValueError):
        return None


def _addresses_left() -> int | None:
    limit = math.inf if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    if resource is None or limit in (math.inf, resource.RLIM_INFINITY):
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return None
    return max(int(limit) - pages * resource.getpagesize(), 0)


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError
