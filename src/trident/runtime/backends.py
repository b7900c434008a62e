"""What can run a bundle's policy beside its NumPy program. Imported only when asked for; one decision at a time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from trident.errors import TridentError
from trident.runtime.bundle import Bundle

BACKENDS = ("numpy", "jax", "iree", "onnx")
FILES = {"jax": "policy.stablehlo", "iree": "policy.vmfb", "onnx": "policy.onnx"}
NEEDS = {"jax": "jax", "iree": "iree-base-runtime", "onnx": "onnxruntime"}
OUTPUTS = ("mode", "params")

Policy = Callable[..., dict[str, np.ndarray]]


def policy_of(bundle: Bundle, backend: str) -> Policy:
    """To be called as the program is: obs, mask, alive and key, each [1, ...]."""
    if backend == "numpy":
        return bundle.programs["policy"]
    file = FILES[backend]
    if file not in bundle.manifest["files"]:
        how = f" (`trident export RUN --{backend}`)" if backend != "jax" else ""
        raise TridentError(f"{bundle.folder} has no {file}: it was exported without it{how}")
    try:
        return {"jax": _jax, "iree": _iree, "onnx": _onnx}[backend](bundle)
    except ImportError as error:
        raise TridentError(f"the backend {backend} needs {NEEDS[backend]}: {error}") from error


def there(bundle: Bundle) -> list[str]:
    """Those that the bundle has files for."""
    return [name for name in BACKENDS if name == "numpy" or FILES[name] in bundle.manifest["files"]]


def _jax(bundle: Bundle) -> Policy:
    return importlib.import_module("trident.export.stablehlo").policy(bundle.folder)


def _iree(bundle: Bundle) -> Policy:
    iree: Any = importlib.import_module("iree.runtime")
    about = bundle.manifest["backends"]["iree"]
    check_machine(bundle, about["machine"])
    context = iree.SystemContext(config=iree.Config("local-sync"))
    data = (bundle.folder / FILES["iree"]).read_bytes()
    module = iree.VmModule.copy_buffer(context.instance, data)
    context.add_vm_module(module)
    main = context.modules[module.name]["main"]

    def run(**given: Any) -> dict[str, np.ndarray]:
        out = main(*(np.ascontiguousarray(given[name]) for name in about["inputs"]))
        return dict(zip(OUTPUTS, (np.asarray(x.to_host()) for x in out), strict=True))

    return run


def check_machine(bundle: Bundle, machine: str) -> None:
    import platform

    if platform.machine() != machine:
        raise TridentError(f"{bundle.folder / FILES['iree']} is for {machine}, this machine is {platform.machine()}")


def _onnx(bundle: Bundle) -> Policy:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = str(bundle.folder / FILES["onnx"])
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(**given: Any) -> dict[str, np.ndarray]:
        return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {name: given[name] for name in names}), strict=True))

    return run
