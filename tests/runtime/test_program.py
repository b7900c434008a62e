"""Programs in NumPy against JAX: random bits bit for bit, every operation, whole policies."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trident.errors import TridentError
from trident.export import functions
from trident.export.tracing import trace
from trident.runtime import operations, tensors, threefry
from trident.runtime.program import Program, sized
from trident.training.registry import make_algorithm, make_env


def both(function, weights, batch=3, **inputs):
    """(NumPy's, JAX's) outputs for rows of inputs."""
    shapes = {name: (x.shape[1:], x.dtype) for name, x in inputs.items()}
    program, arrays = trace(function, weights, shapes)
    ours = Program(json.loads(json.dumps(program)), arrays)(**inputs)
    one = lambda *rows: function(weights, **dict(zip(inputs, rows, strict=True)))  # noqa: E731
    theirs = jax.jit(jax.vmap(one))(*inputs.values())
    return ours, jax.device_get(theirs)


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1])
def test_random_bits_are_those_of_jax(seed):
    key, ours = jax.random.key(seed), threefry.key_of(seed)
    words = lambda k: np.asarray(jax.random.key_data(k))  # noqa: E731
    assert np.array_equal(words(key), ours)
    assert np.array_equal(jax.random.bits(key, (3, 5)), threefry.random_bits(ours, (3, 5)))
    assert np.array_equal(words(jax.random.split(key, 4)), threefry.split(ours, (4,)))
    assert np.array_equal(words(jax.random.fold_in(key, 12)), threefry.fold_in(ours, np.uint32(12)))


def test_draws_of_a_batch_of_keys_are_those_of_jax():
    def draw(weights, key):
        one, two = jax.random.split(jax.random.wrap_key_data(key))
        return {
            "normal": jax.random.normal(one, (50,)),
            "category": jax.random.categorical(two, jnp.arange(4.0)),
            "uniform": jax.random.uniform(jax.random.fold_in(one, 3), (7,), minval=-2.0, maxval=3.0),
            "coin": jax.random.bernoulli(two, 0.3, (9,)),
        }

    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(5), 40)))
    ours, theirs = both(draw, (), key=keys)
    assert np.array_equal(ours["category"], theirs["category"])
    assert np.array_equal(ours["coin"], theirs["coin"])
    assert np.allclose(ours["normal"], theirs["normal"], atol=2e-6)
    assert np.allclose(ours["uniform"], theirs["uniform"], atol=1e-6)


def all_kinds(w, x, y, i, b):
    """Nearly every operation of the table."""
    z = jnp.where(b, x, y)
    pair = jnp.stack([x, y])
    return {
        "arithmetic": (x + y) * x - y / (jnp.abs(x) + 1.0) + x**3 + x**-2 + jnp.sign(y) * jnp.sqrt(jnp.abs(x)),
        "transcendental": jnp.tanh(x) + jnp.exp(-jnp.abs(y)) + jnp.log1p(jnp.abs(x)) + jnp.sin(x) * jnp.cos(y)
        + jnp.arctan2(y, x) + jax.nn.sigmoid(x) + jnp.expm1(0.1 * x) + jax.scipy.stats.norm.cdf(y),
        "rounding": jnp.floor(x) + jnp.ceil(y) + jnp.round(3 * x) + jnp.fmod(x, 0.7),
        "matrix": w["m"] @ x + jnp.einsum("ij,kj->ik", pair, w["m"])[0],
        "batch": jnp.einsum("bij,bj->bi", jnp.broadcast_to(w["m"], (2, 4, 4)), pair),
        "shape": jnp.concatenate([x.reshape(2, 2).T.ravel(), jnp.pad(y, (1, 2)), jnp.flip(x)[1:3], jnp.tile(y, 2)]),
        "reduce": jnp.array([x.sum(), y.max(), x.min(), y.mean(), jnp.prod(x), jnp.linalg.norm(y)]),
        "logic": jnp.array([b.any(), b.all(), (x > y).sum() > 1, jnp.isfinite(x).all(), ~b[0] & b[1] | b[2]]),
        "index": jnp.array([x.argmax(), y.argmin(), i % 3, -7 // (i + 1), jax.lax.div(-7, i + 1)]),
        "gather": jnp.concatenate([x[jnp.array([3, 0, 0])], jnp.take(w["m"], i, axis=0), w["m"][:, i % 4]]),
        "rows": jnp.take_along_axis(pair, jnp.array([[0, 3], [1, 1]]), axis=1),
        "choice": jnp.where(b, z, -jnp.inf) + jax.nn.one_hot(i, 4) + jnp.clip(x, -0.5, w["s"]),
        "sums": jnp.cumsum(x) + jnp.cumsum(y[::-1])[::-1],
        "matches": jax.lax.select_n(i % 3, x, y, z),
        "outside": w["m"].at[i + 9, 0].get(mode="fill", fill_value=5.0),
        "clipped": w["m"].at[i + 9].get(mode="clip"),
    }  # fmt: skip


def test_every_operation_does_what_jax_does():
    rng = np.random.default_rng(0)
    weights = {"m": jnp.asarray(rng.normal(size=(4, 4)), jnp.float32), "s": jnp.float32(0.4)}
    x, y = rng.normal(size=(2, 5, 4)).astype(np.float32)
    ours, theirs = both(all_kinds, weights, x=x, y=y, i=np.arange(5, dtype=np.int32), b=rng.random((5, 4)) < 0.5)
    for name, wanted in theirs.items():
        assert ours[name].dtype == wanted.dtype, name
        assert np.allclose(ours[name], wanted, atol=3e-6, rtol=3e-6, equal_nan=True), name


POLICIES = [
    ("uav-mec", "trident", False),
    ("intersection", "mappo", True),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in [
            ("intersection", "trident", False), ("smac-hybrid-safe", "trident", False), ("uav-mec", "madac", False),
            ("uav-mec", "qmix", False), ("uav-mec", "matd3", False), ("smac-hybrid-safe", "macpo", True),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("env", "algo", "deterministic"), POLICIES)
def test_whole_policies_decide_as_in_jax(env, algo, deterministic):
    env = make_env(env)
    algorithm, spec, rng = make_algorithm(algo, env), env.spec, np.random.default_rng(0)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))

    def fill(x):
        return (0.2 * rng.normal(size=x.shape)).astype(x.dtype) if x.dtype == np.float32 else np.zeros(x.shape, x.dtype)

    function = functions.policy(algorithm, jax.tree.map(fill, state), spec, deterministic, None)
    rows = 40
    mask = rng.random((rows, spec.num_agents, spec.action.num_modes)) < 0.6
    mask[..., 0] = True
    inputs = {
        "obs": rng.normal(size=(rows, spec.num_agents, spec.obs_dim)).astype(np.float32), "mask": mask,
        "alive": np.ones((rows, spec.num_agents), bool),
        "key": np.asarray(jax.random.key_data(jax.random.split(jax.random.key(1), rows))),
    }  # fmt: skip
    program, arrays = trace(function.call, function.weights, function.inputs)
    ours, theirs = Program(program, arrays)(**inputs), functions.in_jax(function)(**inputs)
    assert all(np.array_equal(ours[name], x) for name, x in step_by_step(program, arrays, inputs).items())
    assert np.array_equal(ours["mode"], theirs["mode"])
    width = (spec.action.high - spec.action.low).max(1)
    assert (np.abs(ours["params"] - theirs["params"]) / np.maximum(width, 1.0)).max() < 1e-4


def test_products_of_many_rows_are_taken_few_at_a_time():
    rng = np.random.default_rng(0)
    weights = jnp.asarray(rng.normal(size=(130, 120)), jnp.float32)
    x = rng.normal(size=(2, 50, 130)).astype(np.float32)
    ours, theirs = both(lambda w, x: {"y": x @ w}, weights, x=x)
    assert 4 * operations.ONE_THREAD < 100 * 130 * 120
    assert np.allclose(ours["y"], theirs["y"], atol=1e-4)


def test_what_does_not_depend_on_the_inputs_is_worked_out_once():
    program, arrays = trace(lambda w, x: {"y": x + jnp.sin(w) * jnp.arange(3.0)}, np.float32(1.0), {"x": ((3,), "f4")})
    made = Program(program, arrays)
    made(x=np.zeros((2, 3)))
    steps = [left for _, left, _ in made._prepared.values()]
    assert len(program["steps"]) > 2
    assert [len(left) for left in steps] == [1]  # the addition, which spreads the other operand by itself


def step_by_step(program, arrays, inputs):
    """The program as it is written, nothing prepared."""
    batch = len(next(iter(inputs.values())))
    values = dict(enumerate(inputs.values())) | {slot: arrays[name] for slot, name in program["constants"]}
    values |= {slot: np.asarray(value, kind) for slot, value, kind in program["literals"]}
    with np.errstate(all="ignore"):
        for op, reads, writes, params in program["steps"]:
            out = operations.OPERATIONS[op](sized(params, batch))(*(values[slot] for slot in reads))
            values |= dict(zip(writes, [out] if len(writes) == 1 else out, strict=True))
    return {name: np.asarray(values[slot]) for name, slot in program["outputs"]}


def test_preparing_a_program_changes_no_bit_and_saves_steps():
    def layers(w, x, b):
        row = jnp.tanh(x @ w["m"] + w["b"])  # a row added to a batch
        scaled = row / row.sum(axis=1, keepdims=True)  # a column spread over what it divides
        again = row * 2.0 + jnp.tanh(x @ w["m"] + w["b"])  # what was worked out before
        # spread by nobody else: two narrow operands, and one that is asked for as it is
        return {
            "y": scaled, "z": again, "where": jnp.where(b[:, None], x, w["b"]), "sum": b[:, None] + w["b"][None],
            "spread": jnp.broadcast_to(w["b"], (5, 4)) + 0 * x, "itself": jnp.broadcast_to(x[0], (5, 4)),
        }  # fmt: skip

    rng = np.random.default_rng(0)
    weights = {"m": rng.normal(size=(4, 4)).astype("f4"), "b": rng.normal(size=4).astype("f4")}
    inputs = {"x": rng.normal(size=(3, 5, 4)).astype("f4"), "b": rng.random((3, 5)) < 0.5}
    program, arrays = trace(layers, weights, {"x": ((5, 4), np.float32), "b": ((5,), np.bool_)})
    made = Program(program, arrays)
    for batch in (3, 1, 3):
        given = {name: x[:batch] for name, x in inputs.items()}
        ours, plain = made(**given), step_by_step(program, arrays, given)
        assert ours.keys() == plain.keys()
        assert all(np.array_equal(ours[k], plain[k]) and ours[k].dtype == plain[k].dtype for k in plain)
    assert len(made._prepared[3][1]) < 0.7 * len(program["steps"])


def test_a_program_says_what_is_wrong_with_it():
    program, arrays = trace(lambda w, x: {"y": 2.0 * x}, (), {"x": ((3,), np.float32)})
    with pytest.raises(TridentError, match="x must have shape"):
        Program(program, arrays)(x=np.zeros((2, 4)))
    with pytest.raises(TridentError, match="takes x, not z"):
        Program(program, arrays)(z=np.zeros((2, 3)))
    with pytest.raises(TridentError, match="operations that this trident does not have: launch"):
        Program(program | {"steps": [["launch", [0], [1], {}]]}, arrays)
    with pytest.raises(TridentError, match="format 9"):
        Program(program | {"format": 9}, arrays)
    with pytest.raises(TridentError, match="damaged"):
        Program({"format": 1}, arrays)
    with pytest.raises(TridentError, match="'sort' has no counterpart"):
        trace(lambda w, x: {"y": jnp.sort(x)}, (), {"x": ((3,), np.float32)})


def test_tensors_are_read_as_they_were_written():
    arrays = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "flags": np.array([True, False]), "one": np.int32(4)}
    data = tensors.dump(arrays)
    back = tensors.parse(data)
    assert {k: (v.dtype, v.shape, v.tolist()) for k, v in back.items()} == {
        k: (np.asarray(v).dtype, np.shape(v), np.asarray(v).tolist()) for k, v in arrays.items()
    }
    for broken in (data[:-3], data[:20], b"", b"\xff" * 40):
        with pytest.raises(TridentError, match="damaged"):
            tensors.parse(broken)


def test_the_format_is_that_of_the_safetensors_library():
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False])}
    assert all(np.array_equal(library.load(tensors.dump(arrays))[k], v) for k, v in arrays.items())
    assert all(np.array_equal(tensors.parse(library.save(arrays))[k], v) for k, v in arrays.items())
