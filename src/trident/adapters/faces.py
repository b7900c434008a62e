"""Other interfaces behind that of a ParallelEnv: as much of it as `inward.FromParallel` asks for."""

from __future__ import annotations

from typing import Any

Dicts = tuple[dict[Any, Any], dict[Any, float], dict[Any, bool], dict[Any, bool], dict[Any, dict[str, Any]]]
ALONE = "agent"


class OneAgent:
    """An environment of Gymnasium."""

    def __init__(self, env: Any):
        self.env, self.possible_agents, self.agents = env, [ALONE], [ALONE]
        self.render_mode, self.metadata, self.spec = env.render_mode, env.metadata, env.spec

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def observation_space(self, agent: Any) -> Any:
        return self.env.observation_space

    def action_space(self, agent: Any) -> Any:
        return self.env.action_space

    def reset(self, seed: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
        obs, info = self.env.reset(seed=seed)
        self.agents = [ALONE]
        return {ALONE: obs}, {ALONE: info}

    def step(self, actions: dict[Any, Any]) -> Dicts:
        obs, reward, terminated, truncated, info = self.env.step(actions[ALONE])
        self.agents = [] if terminated or truncated else [ALONE]
        return {ALONE: obs}, {ALONE: reward}, {ALONE: terminated}, {ALONE: truncated}, {ALONE: info}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class TurnByTurn:
    """An AECEnv whose agents take turns: in every step the one whose turn it is takes part, the others wait."""

    def __init__(self, env: Any):
        self.env, self.possible_agents = env, list(env.possible_agents)
        self.render_mode, self.metadata = getattr(env, "render_mode", None), env.metadata
        self.observation_space, self.action_space = env.observation_space, env.action_space

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    @property
    def agents(self) -> list[Any]:
        return [self.env.agent_selection] if self.env.agents else []

    def state(self) -> Any:
        return self.env.state()

    def reset(self, seed: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
        self.env.reset(seed=seed)
        return self._seen(), self._infos()

    def step(self, actions: dict[Any, Any]) -> Dicts:
        self.env.step(actions[self.env.agent_selection])
        rewards = dict(self.env.rewards)
        over = dict(self.env.terminations), dict(self.env.truncations)
        seen, infos = self._seen(), self._infos()
        while self.env.agents and self._is_over(self.env.agent_selection):
            self.env.step(None)  # who is out must take leave
        return seen, rewards, *over, infos

    def _is_over(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _seen(self) -> dict[Any, Any]:
        return {agent: self.env.observe(agent) for agent in self.env.agents}

    def _infos(self) -> dict[Any, Any]:
        return {agent: self.env.infos.get(agent, {}) for agent in self.env.agents}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
