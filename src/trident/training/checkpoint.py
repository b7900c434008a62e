"""Checkpoints: any pytree of arrays as an .npz payload beside a JSON manifest, never pickled.

A checkpoint is `<round>.npz` + `<round>.json`. Both are written whole or not at all (`run_directory.write`), the
manifest last: a crash at any moment leaves the older checkpoints untouched and at most some rubbish to sweep up.
The manifest says what the arrays are (tree paths, dtypes, shapes, sha256), whose they are (the run's identity) and
which records lead up to them, and has a digest of itself. Payloads are read as if strangers had made them: nothing is
allocated that the run's own shapes do not ask for.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.errors import StorageError, TridentError
from trident.renamed import modern_identity
from trident.run_directory import PARTIAL, write
from trident.sealed import DIGEST, parse, read_bytes, schema_faults, seal, unseal

FORMAT = 3
UNSEALED = 2
"""The format before manifests had digests; it is still read."""
KEPT = 2
NAME = re.compile(r"(\d{8,10})\.(npz|json)")
SCHEMA = {
    "format": int,
    "round": int,
    "identity": {...: object},
    "leaves": [{"path": str, "dtype": str, "shape": [int]}],
    "sha256": str,
    "records?": str | None,
}
OVERHEAD = 1024
"""Most bytes of a payload beside each array's own: headers and names."""


class Restored(NamedTuple):
    tree: Any
    round: int
    manifest: dict[str, Any]
    notes: list[str]
    """What the user should know, e.g. that the newest checkpoint was corrupt and an older one was taken."""


class Corrupt(Exception):
    """This one checkpoint cannot be read; an older one may."""


def save(
    folder: Path,
    tree: Any,
    round_: int,
    identity: Mapping[str, Any],
    kept: int = KEPT,
    records: str | None = None,
) -> Path:
    """Write one checkpoint atomically and drop all but the newest ones; `records` is the digest of the records up to
    here. Returns the manifest's path."""
    _check_folder(folder)
    leaves = [_describe(path, leaf) for path, leaf in _leaves(tree)]
    manifest = {"format": FORMAT, "round": round_, "identity": dict(identity), "records": records}
    manifest["leaves"] = [description for description, _ in leaves]
    payload, note = folder / f"{round_:08d}.npz", folder / f"{round_:08d}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(payload, lambda file: _write_arrays(file, [array for _, array in leaves]))
        text = json.dumps(seal(manifest | {"sha256": _sha256(payload)}), indent=1).encode()
        write(note, lambda file: file.write(text))
    except OSError as error:
        _sweep(folder)
        older = [r for r in rounds(folder) if r != round_]
        left = f"the checkpoint of round {older[0]} is kept" if older else "there is no older one"
        raise StorageError(
            f"could not write the checkpoint of round {round_} to {folder}: {error.strerror or error}; {left}"
        ) from error
    for old in rounds(folder)[kept:]:
        (folder / f"{old:08d}.json").unlink(missing_ok=True)
        (folder / f"{old:08d}.npz").unlink(missing_ok=True)
    _sweep(folder)
    return note


def rounds(folder: Path) -> list[int]:
    """Rounds that have a checkpoint, newest first."""
    names = (NAME.fullmatch(path.name) for path in folder.glob("*.json"))
    return sorted((int(m[1]) for m in names if m), reverse=True)


def restore(folder: Path, template: Any, identity: Mapping[str, Any], optional: tuple[str, ...] = ()) -> Restored:
    """The newest readable checkpoint in the shape of `template` (arrays or ShapeDtypeStructs).

    `template` may be a part of the saved tree when its paths are equal, e.g. only some fields of a NamedTuple.
    Leaves whose path begins with one of `optional` may be missing: they are zeros then. A corrupt checkpoint is passed
    over for an older one; one of another run is an error.
    """
    _check_folder(folder)
    notes: list[str] = []
    for round_ in rounds(folder):
        try:
            manifest = _read_manifest(folder / f"{round_:08d}.json", round_)
            _check_identity(folder, manifest, identity)
            tree = _read_tree(folder / f"{round_:08d}.npz", manifest, template, optional)
        except Corrupt as error:
            notes.append(f"the checkpoint of round {round_} is corrupt ({error})")
            continue
        notes = [f"{note}; took the one before it" for note in notes] + _version_notes(manifest, identity)
        return Restored(tree, round_, manifest, notes)
    raise TridentError(f"no readable checkpoint in {folder}" + "".join(f": {n}" for n in notes[-1:]))


def prove(folder: Path, round_: int) -> dict[str, Any]:
    """The manifest of one checkpoint, if it and its payload are what was written; Corrupt otherwise."""
    _check_folder(folder)
    manifest, payload = _read_manifest(folder / f"{round_:08d}.json", round_), folder / f"{round_:08d}.npz"
    try:
        _check_size(payload, manifest["leaves"])
        if _sha256(payload) != manifest["sha256"]:
            raise Corrupt("its payload is not what was written")
    except (OSError, TypeError, OverflowError) as error:
        raise Corrupt("its payload cannot be read") from error
    return manifest


def _check_folder(folder: Path) -> None:
    if folder.is_symlink():  # what is swept up there would be somebody else's
        raise TridentError(f"{folder} is a symbolic link: put the folder itself in its place")


# --- writing --------------------------------------------------------------------------------------


def _leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path), leaf


def _describe(path: str, leaf: Any) -> tuple[dict[str, Any], np.ndarray]:
    """A leaf as (what it is, a plain array): typed keys as their words, exotic floats as their bits."""
    if _is_key(leaf):
        array, kind = np.asarray(jax.random.key_data(leaf)), f"key<{jax.random.key_impl(leaf)}>"
    else:
        array = np.asarray(leaf)
        kind = array.dtype.name
    if array.dtype.kind == "V":  # bfloat16 and friends are unknown to .npy
        array = array.view(f"u{array.dtype.itemsize}")
    return {"path": path, "dtype": kind, "shape": list(array.shape)}, array


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.dtype("f4")), jax.dtypes.prng_key)


def _write_arrays(file: Any, arrays: list[np.ndarray]) -> None:
    np.savez(file, **{f"a{i}": a for i, a in enumerate(arrays)})  # pyright: ignore[reportArgumentType]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sweep(folder: Path) -> None:
    """Remove what an interrupted save left: partial files, and payloads without a manifest. No others: they are not
    ours."""
    for path in folder.glob("*"):
        whole = path.name.removesuffix(PARTIAL)
        torn = path.name != whole or not path.with_suffix(".json").exists()
        if NAME.fullmatch(whole) and torn:
            path.unlink(missing_ok=True)


# --- reading --------------------------------------------------------------------------------------


def _read_manifest(path: Path, round_: int) -> dict[str, Any]:
    try:
        content = parse(read_bytes(path))
        manifest = unseal(content)
        fault = next(schema_faults(SCHEMA, manifest), None)
    except (TridentError, ValueError) as error:
        raise Corrupt(f"its manifest cannot be read: {error}") from error
    if fault is not None:
        raise Corrupt(f"its manifest is incomplete: {fault}")
    if manifest["format"] == FORMAT and DIGEST not in content:
        raise Corrupt("its manifest has no digest")
    if manifest["round"] != round_:
        raise Corrupt(f"its manifest is of round {manifest['round']}")
    return manifest


def _check_identity(folder: Path, manifest: dict[str, Any], identity: Mapping[str, Any]) -> None:
    if manifest["format"] not in (FORMAT, UNSEALED):
        raise TridentError(
            f"the checkpoint in {folder} has format {manifest['format']}, this version of trident reads {FORMAT}; "
            "`commit` in run.json names the version that wrote it"
        )
    whose = modern_identity(manifest["identity"])
    for name, value in identity.items():
        saved = whose.get(name)
        if name not in NOT_CHECKED and saved != value:
            raise TridentError(f"the checkpoint in {folder} is of another run: its {name} is {saved!r}, not {value!r}")


NOT_CHECKED = ("jax", "cores", "devices")
"""Parts of the identity that decide only whether a resumed run is bit-exact, not whether it is possible."""


def _version_notes(manifest: dict[str, Any], identity: Mapping[str, Any]) -> list[str]:
    saved = {"devices": "1"} | manifest["identity"]  # once there was no other number
    return [
        f"the run was started with {name} {saved[name]}, now {identity[name]}: it goes on, but not bit for bit"
        for name in NOT_CHECKED
        if name in saved and name in identity and saved[name] != identity[name]
    ]


def _read_tree(path: Path, manifest: dict[str, Any], template: Any, optional: tuple[str, ...]) -> Any:
    saved = {leaf["path"]: (i, leaf) for i, leaf in enumerate(manifest["leaves"])}
    wanted = list(_leaves(template))
    for name, leaf in wanted:
        if name in saved or not name.startswith(optional):
            _check_fit(saved, name, leaf)
    try:
        _check_size(path, manifest["leaves"])
        if _sha256(path) != manifest["sha256"]:
            raise Corrupt("its payload is not what was written")
        with zipfile.ZipFile(path) as archive:
            leaves = [_read_leaf(archive, *saved[name]) if name in saved else jnp.zeros(leaf.shape, leaf.dtype)
                      for name, leaf in wanted]  # fmt: skip
    except Corrupt:
        raise
    except Exception as error:  # a damaged archive raises whatever it likes
        raise Corrupt("its payload cannot be read") from error
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _check_fit(saved: dict[str, Any], name: str, wanted: Any) -> None:
    """By what the manifest says: before anything is read."""
    if name not in saved:
        raise TridentError(f"the checkpoint does not fit this run: it has no {name}")
    described = saved[name][1]
    shape, dtype = tuple(described["shape"]), described["dtype"]
    if _is_key(wanted):
        impl: list[Any] = []
        words = jax.eval_shape(lambda key: impl.append(jax.random.key_impl(key)) or jax.random.key_data(key), wanted)
        fits = shape == words.shape and dtype == f"key<{impl[0]}>"
    else:
        fits = shape == tuple(wanted.shape) and dtype == jnp.dtype(wanted.dtype).name
    if not fits:
        raise TridentError(
            f"the checkpoint does not fit this run: {name} is {dtype}{list(shape)}, "
            f"not {wanted.dtype}{list(wanted.shape)}"
        )


def _check_size(path: Path, leaves: list[dict[str, Any]]) -> None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise Corrupt("its payload is not a regular file")
    most = sum(math.prod(leaf["shape"]) * _plain_dtype(leaf["dtype"]).itemsize + OVERHEAD for leaf in leaves)
    if not 0 <= status.st_size <= most + OVERHEAD:
        raise Corrupt(f"its payload has {status.st_size:,} bytes, where its arrays take {most:,} at most")


def _plain_dtype(name: str) -> np.dtype:
    """As which a leaf is stored: see `_describe`."""
    if name.startswith("key<"):
        return np.dtype("<u4")
    dtype = jnp.dtype(name)
    return np.dtype(f"<u{dtype.itemsize}") if dtype.kind == "V" else dtype.newbyteorder("<")


def _read_leaf(archive: zipfile.ZipFile, index: int, described: dict[str, Any]) -> Any:
    name, dtype, shape = described["dtype"], _plain_dtype(described["dtype"]), tuple(described["shape"])
    if archive.getinfo(f"a{index}.npy").compress_type != zipfile.ZIP_STORED:
        raise Corrupt("its payload is compressed, as trident's never are")
    with archive.open(f"a{index}.npy") as file:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        if (found := reader(file))[0] != shape or found[2] != dtype:
            raise Corrupt(f"array {described['path']} is {found[2]}{list(found[0])}, not {dtype}{list(shape)}")
        count = math.prod(shape)
        data = file.read(count * dtype.itemsize + 1)
    if len(data) != count * dtype.itemsize:
        raise Corrupt(f"array {described['path']} has {len(data):,} bytes")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if found[1] else "C")
    if name.startswith("key<"):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=name[4:-1])
    return jnp.asarray(array.view(jnp.dtype(name)) if array.dtype != jnp.dtype(name) else array)
