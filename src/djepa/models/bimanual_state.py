"""The training state of the bimanual policy, from which the same command resumes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.resume import read_state, write_state

POLICY, OPTIMISER = "policy.", "optimiser."
MEASURED = 200  # updates over which the error is a mean


@dataclass
class State:
    """Everything that changes between updates."""

    policy: nn.Module
    optimiser: torch.optim.Optimizer
    random: torch.Generator  # of batches, on the CPU
    step: int = 0
    errors: list[float] = field(default_factory=list)  # of the last updates

    def save(self, path: Path, config: Mapping[str, Any]) -> None:
        """Write the state atomically."""
        tensors = {POLICY + name: tensor for name, tensor in self.policy.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"{OPTIMISER}{number}.{name}": of for name, of in moments.items()}
        tensors["random"] = self.random.get_state()
        tensors["errors"] = torch.tensor(self.errors[-MEASURED:], dtype=torch.float64)
        write_state(path, tensors, {"config": dict(config), "step": self.step})

    def load(self, path: Path, config: Mapping[str, Any]) -> None:
        """Restore the state that an earlier run with the same settings saved."""
        tensors, about = read_state(path)
        if about.get("config") != dict(config):
            raise DjepaError(
                f"{path} is of an unfinished training of other settings. Finish it with its own, "
                "remove it, or choose another folder."
            )
        moments: dict[int, dict[str, Tensor]] = {}
        for name in (name for name in tensors if name.startswith(OPTIMISER)):
            number, _, of = name.removeprefix(OPTIMISER).partition(".")
            moments.setdefault(int(number), {})[of] = tensors[name]
        self.policy.load_state_dict(
            {n.removeprefix(POLICY): of for n, of in tensors.items() if n.startswith(POLICY)}
        )
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.random.set_state(tensors["random"])
        self.step, self.errors = int(about["step"]), tensors["errors"].tolist()
