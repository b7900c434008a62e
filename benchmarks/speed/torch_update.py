"""One agent's constrained trust-region update, written plainly in PyTorch: the yardstick of `trident bench speed`.

    python torch_update.py PROBLEM.npz THREADS

reads words from standard input, does one update for each, and answers with a line of JSON (seconds, mean KL, changes
of the surrogates, line-search evaluations). The words:

    public       Hessian-vector products of the mean KL by differentiating it twice, forward pass and first derivative
                 anew in every product: how published multi-agent trust-region code does it
    kept-graph   the same with the graph of the first derivative kept over all products

The update is the one of trident.maths.constrained_update: conjugate gradients for the reward and every cost, the
exact step under K linear budgets and the trust region, then a line search on the true KL and the true surrogates.
The parameters are put back after each update, so every one of them solves the same problem.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

import numpy as np
import torch
from torch.nn import functional as F


class Actor(torch.nn.Module):
    """LayerNorm + ReLU layers; logits and one Gaussian mean per mode; log-std free of the input."""

    def __init__(self, layers: list[dict[str, np.ndarray]], log_std: np.ndarray) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        for layer in layers:
            linear = torch.nn.Linear(*layer["w"].shape)
            linear.weight.data, linear.bias.data = torch.tensor(layer["w"].T.copy()), torch.tensor(layer["b"])
            self.layers.append(linear)
            if "scale" in layer:
                norm = torch.nn.LayerNorm(len(layer["scale"]), eps=1e-5)
                norm.weight.data, norm.bias.data = torch.tensor(layer["scale"]), torch.tensor(layer["shift"])
                self.norms.append(norm)
        self.log_std = torch.nn.Parameter(torch.tensor(log_std))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        for linear, norm in zip(self.layers, self.norms, strict=False):
            x = F.relu(norm(linear(x)))
        out = self.layers[-1](x)
        modes, params = self.log_std.shape
        mean = out[:, modes:].reshape(-1, modes, params)
        return F.log_softmax(out[:, :modes], -1), mean, self.log_std.clamp(-4.0, 1.0).expand_as(mean)


class Update:
    def __init__(self, problem: dict[str, np.ndarray]) -> None:
        count = int(problem["layers"])
        names = ("w", "b", "scale", "shift")
        layers = [{n: problem[f"{n}{i}"] for n in names if f"{n}{i}" in problem} for i in range(count)]
        self.actor = Actor(layers, problem["log_std"])
        self.rule = {name: float(problem[name]) for name in ("delta", "damping", "ratio", "slack")}
        self.cg_steps, self.backtracks = int(problem["cg_steps"]), int(problem["backtracks"])
        self.budget = problem["budget"].astype(float)
        self.obs, self.raw = torch.tensor(problem["obs"]), torch.tensor(problem["raw"])
        self.mode, self.advantage = torch.tensor(problem["mode"]).long(), torch.tensor(problem["advantage"])
        self.used = torch.tensor(problem["used"])
        self.start = [p.detach().clone() for p in self.actor.parameters()]

    def log_prob(self) -> torch.Tensor:
        logp, mean, log_std = self.actor(self.obs)
        rows = torch.arange(len(self.mode))
        mean, log_std, used = mean[rows, self.mode], log_std[rows, self.mode], self.used[self.mode]
        gauss = -0.5 * ((self.raw - mean) * torch.exp(-log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
        return logp[rows, self.mode] + (gauss * used).sum(-1)

    def surrogates(self) -> torch.Tensor:
        ratio = torch.exp(self.log_prob() - self.old_log_prob)
        return (ratio[:, None] * self.advantage).mean(0)

    def kl(self) -> torch.Tensor:
        (old_logp, old_mean, old_log_std), (logp, mean, log_std) = self.old, self.actor(self.obs)
        gauss = log_std - old_log_std - 0.5
        gauss = gauss + (torch.exp(2 * old_log_std) + (old_mean - mean) ** 2) / (2 * torch.exp(2 * log_std))
        per_mode = old_logp - logp + (gauss * self.used).sum(-1)
        return (old_logp.exp() * per_mode).sum(-1).mean()

    def slope(self, value: torch.Tensor, **options: bool) -> torch.Tensor:
        grads = torch.autograd.grad(value, list(self.actor.parameters()), **options)
        return torch.cat([g.reshape(-1) for g in grads])

    def hessian_product(self, v: torch.Tensor) -> torch.Tensor:
        first = self.kept if self.kept is not None else self.slope(self.kl(), create_graph=True)
        return self.slope(first @ v, retain_graph=self.kept is not None) + self.rule["damping"] * v

    def conjugate_gradient(self, b: torch.Tensor) -> torch.Tensor:
        x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
        square = residual @ residual
        for _ in range(self.cg_steps):
            image = self.hessian_product(direction)
            length = square / (direction @ image)
            x, residual = x + length * direction, residual - length * image
            fresh = residual @ residual
            direction, square = residual + fresh / square * direction, fresh
        return x

    def put(self, step: torch.Tensor) -> None:
        at = 0
        for parameter, old in zip(self.actor.parameters(), self.start, strict=True):
            parameter.data = old + step[at : at + old.numel()].view_as(old)
            at += old.numel()

    def run(self, keep_graph: bool) -> dict[str, object]:
        began = time.perf_counter()
        with torch.no_grad():
            self.old = tuple(x.detach() for x in self.actor(self.obs))
            self.old_log_prob = self.log_prob().detach()
        before = self.surrogates()
        gradients = torch.stack([self.slope(s, retain_graph=True) for s in before])
        before = before.detach()
        self.kept = self.slope(self.kl(), create_graph=True) if keep_graph else None
        natural = torch.stack([self.conjugate_gradient(g) for g in gradients])
        gram = (gradients @ natural.T).double().numpy()
        weights = best_step(gram, self.budget, self.rule["delta"])
        step = torch.tensor(weights, dtype=torch.float32) @ natural
        answer = self.line_search(step, before)
        answer["seconds"] = time.perf_counter() - began
        self.put(torch.zeros_like(step))
        return answer

    def line_search(self, step: torch.Tensor, before: torch.Tensor) -> dict[str, object]:
        must = self.budget < 0
        for trial in range(self.backtracks):
            fraction = self.rule["ratio"] ** trial
            self.put(fraction * step)
            with torch.no_grad():
                kl, change = float(self.kl()), (self.surrogates() - before).numpy()
            wanted = np.where(must, 0.1 * fraction * self.budget, np.maximum(self.budget, 0) + 1e-6)
            good = kl <= self.rule["slack"] * self.rule["delta"] and bool(np.all(change[1:] <= wanted))
            if good and (change[0] > 0 or must.any()):
                return {"kl": kl, "change": change.tolist(), "evaluations": trial + 1}
        return {"kl": 0.0, "change": [0.0] * len(before), "evaluations": self.backtracks}


def best_step(gram: np.ndarray, budget: np.ndarray, delta: float) -> np.ndarray:
    """Weights w of  x = sum_j w_j H^-1 g_j  that maximise the reward's model under b_k'x <= c_k and x'Hx <= 2 delta,
    by trying every set of active constraints."""
    gram = 0.5 * (gram + gram.T)  # unconverged conjugate gradients leave it a little uneven
    best, value = np.zeros(len(gram)), -np.inf
    for size in range(len(budget) + 1):
        for active in itertools.combinations(range(1, len(gram)), size):
            a = list(active)
            inner = gram[np.ix_(a, a)]
            on, reward = np.zeros(len(gram)), np.zeros(len(gram))
            on[a] = np.linalg.solve(inner, budget[[k - 1 for k in a]])
            reward[0] = 1.0
            reward[a] = -np.linalg.solve(inner, gram[a, 0])
            room, length = 2 * delta - on @ gram @ on, reward @ gram @ reward
            if room < 0 or length <= 0:
                continue
            w = on + np.sqrt(room / length) * reward
            change = gram @ w
            if np.all(change[1:] <= budget + 1e-6 * np.abs(budget)) and change[0] > value:
                best, value = w, change[0]
    return best


def main() -> None:
    path, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with np.load(path) as problem:
        update = Update(dict(problem))
    for word in sys.stdin:
        print(json.dumps(update.run(keep_graph=word.strip() == "kept-graph")), flush=True)


if __name__ == "__main__":
    main()
