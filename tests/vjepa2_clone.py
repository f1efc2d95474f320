"""A stand-in for a clone of V-JEPA 2's repository: its entry point, and a file of weights."""

from pathlib import Path

import torch
from torch import nn

HUB = """
import torch
from torch import nn
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv3d(3, 8, (2, 16, 16), (2, 16, 16))
    def forward(self, x):
        return self.patch(x).flatten(2).mT
class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8 + 14, 8)
    def forward(self, x, actions, states):
        told = torch.cat([actions, states], -1).expand(-1, x.shape[1], -1)
        return self.mix(torch.cat([x, told], -1))
def vjepa2_ac_vit_giant(pretrained=True):
    assert not pretrained
    return Encoder(), Predictor()
"""


def stand_in(folder: Path, seed: int = 0) -> Path:
    """Write the clone of a small network, and its weights with keys as they are published."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hubconf.py").write_text(HUB)
    names: dict[str, type[nn.Module]] = {}
    exec(HUB, names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, predictor = names["Encoder"](), names["Predictor"]()
    stored = {
        "encoder": {f"module.backbone.{k}": v for k, v in encoder.state_dict().items()},
        "predictor": {f"module.{k}": v for k, v in predictor.state_dict().items()},
    }
    torch.save(stored, folder / "weights.pt")
    return folder / "weights.pt"
