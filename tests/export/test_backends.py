"""IREE modules and ONNX graphs of policies: as JAX decides, or refused. Without their packages most is left out."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

import trident
from trident.errors import TridentError
from trident.export.bundle import Choices, export
from trident.export.onnx_graph import SAME, SPECIAL, graph
from trident.export.tracing import trace
from trident.report.progress import Silent
from trident.runtime import Guard, open_bundle
from trident.runtime.backends import BACKENDS, policy_of, there
from trident.runtime.operations import OPERATIONS
from trident.runtime.parity import self_test


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> trident.Run:
    out = tmp_path_factory.mktemp("backends") / "run"
    quick = {"references": False, "video": False, "progress": Silent()}
    return trident.train("tiny", "tiny", episodes=4, seeds=1, out=out, eval_episodes=0, **quick)


def network(weights, x, allowed):
    """Most of what a network's policy is made of."""
    hidden = jnp.tanh(x @ weights["w"] + 0.5) * jax.nn.sigmoid(x).sum(-1, keepdims=True)
    logits = jnp.where(allowed | ~allowed.any(-1, keepdims=True), hidden - hidden.max(-1, keepdims=True), -1e9)
    mode = jnp.argmax(logits, axis=-1)
    clipped = jnp.clip(jnp.concatenate([hidden[:, 1:] ** 3, jnp.exp(-(hidden**2))], -1), -0.9, 0.8)
    scale = jax.lax.rsqrt(2.0 + mode)[:, None]
    return {"mode": mode.astype(jnp.int32), "params": clipped.T.reshape(clipped.shape) / scale}


def test_a_graph_computes_what_jax_does():
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(5, 3)).astype(np.float32)}
    model, names = graph(*trace(network, weights, {"x": ((4, 5), np.float32), "allowed": ((4, 3), np.bool_)}))
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(20):
        given = {"x": rng.normal(size=(1, 4, 5)).astype(np.float32), "allowed": rng.random((1, 4, 3)) < 0.7}
        wanted = network(weights, given["x"][0], given["allowed"][0])
        mode, params = session.run(["mode", "params"], {name: given[name] for name in names})
        assert mode[0].tolist() == wanted["mode"].tolist()
        assert np.allclose(params[0], wanted["params"], atol=1e-5)


def test_what_onnx_cannot_do_is_refused_by_name():
    pytest.importorskip("onnx")
    draw = lambda weights, key: {"mode": jax.random.bits(jax.random.wrap_key_data(key), (3,))}  # noqa: E731
    with pytest.raises(TridentError, match="there is no 'random_bits' in ONNX"):
        graph(*trace(draw, (), {"key": ((2,), np.uint32)}))


def test_all_that_is_spelled_for_onnx_is_an_operation_of_programs():
    assert {*SAME, *SPECIAL} <= set(OPERATIONS)


@pytest.mark.parametrize("backend", ["iree", "onnx"])
def test_a_bundle_decides_alike_by_every_backend(run, tmp_path, backend):
    pytest.importorskip({"iree": "iree.compiler", "onnx": "onnx"}[backend])
    pytest.importorskip({"iree": "iree.runtime", "onnx": "onnxruntime"}[backend])
    manifest = export(run, tmp_path / "b", Choices(observations=100, **{backend: True}))
    assert manifest["parity"]["backends"][backend]["modes different"] == 0
    bundle = open_bundle(tmp_path / "b")
    assert there(bundle) == ["numpy", "jax", backend]
    assert self_test(bundle, backend)["programs"]["policy"]["rows"] == 50
    plain, other = Guard(bundle, deadline=60.0), Guard(bundle, policy=policy_of(bundle, backend), deadline=60.0)
    for obs in np.random.default_rng(2).uniform(0, 1, (5, 2, 3)):
        one, two = plain.decide(obs).action, other.decide(obs).action
        assert np.array_equal(one.mode, two.mode)
        assert np.allclose(one.params, two.params, atol=1e-5)


@pytest.mark.parametrize(("backend", "package"), [("iree", "iree.compiler"), ("onnx", "onnx")])
def test_a_package_that_is_not_there_is_one_line_and_nothing_is_left(run, tmp_path, backend, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TridentError, match=f"--{backend} needs"):
        export(run, tmp_path / "b", Choices(observations=20, **{backend: True}))
    assert not list(tmp_path.iterdir())


def test_a_backend_that_was_not_exported_says_how(run, tmp_path):
    export(run, tmp_path / "b", Choices(observations=20))
    bundle = open_bundle(tmp_path / "b")
    assert there(bundle) == ["numpy", "jax"]
    for backend in set(BACKENDS) - {"numpy", "jax"}:
        with pytest.raises(TridentError, match=f"exported without it .`trident export RUN --{backend}`"):
            policy_of(bundle, backend)


assert tiny  # the environment of these tests is registered by importing it
