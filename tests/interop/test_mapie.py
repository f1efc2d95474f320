"""The guarantee is the one that MAPIE computes: same p-values, same sequence, same threshold."""

import numpy as np
import pytest
import torch
from scratch import needs

from djepa.align.gates import NEVER, Gate
from djepa.align.risk import GRID, risk_controlled
from djepa.evidence.ranks import best


@needs("mapie")
@pytest.mark.filterwarnings("ignore")
def test_mapie_certifies_the_same_threshold() -> None:
    from mapie.risk_control import control_fwer
    from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

    found = set()
    for seed in range(40):
        random = torch.Generator().manual_seed(seed)
        N, K = 2 ** int(torch.randint(6, 10, (1,), generator=random)), 6  # shares are exact
        base = torch.rand(N, K, generator=random, dtype=torch.float64)
        refined = base + 0.3 * torch.randn(N, K, generator=random, dtype=torch.float64)
        success = torch.rand(N, K, generator=random) < 0.9
        ids = torch.arange(K).expand(N, -1)
        limit, confidence = (0.02, 0.05, 0.1)[seed % 3], (0.9, 0.95)[seed % 2]
        ours = risk_controlled(Gate(), base, refined, ids, success, limit, confidence)
        gain = Gate().advantage(base, refined, ids)
        won = [success.gather(1, best(x, ids)[:, None])[:, 0] for x in (base, refined)]
        harmed = [int((won[0] & ~won[1] & (gain > tau)).sum()) for tau in GRID]
        risk = np.array(harmed) / N
        p = compute_hoeffding_bentkus_p_value(risk, N, limit, binary=True)[:, 0]
        valid = control_fwer(p, 1 - confidence, "fixed_sequence")
        wanted = GRID[max(valid)] if len(valid) else NEVER
        assert ours.gate.threshold == wanted
        assert ours.valid == bool(len(valid))
        found.add(ours.gate.threshold)
    assert len(found) > 5  # among them "never" and several thresholds
    assert NEVER in found
