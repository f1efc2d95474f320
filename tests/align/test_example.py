"""The examples of README and docs/own-model.md run as they stand, but for fewer updates."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import djepa
from djepa.align.presets import best_for

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/own-model.md"


def test_the_example_runs_from_an_empty_folder(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    code = found[1]
    assert len([line for line in code.splitlines() if not line.startswith(" ")]) <= 12
    code = code.replace(
        ".fit(fitting, success[:100])", ".fit(fitting, success[:100], config=SHORT)"
    )
    short = "from dataclasses import replace\nfrom djepa.align.presets import best_for\n"
    at = code.index("alignment = ")
    code = code[:at] + short + "SHORT = replace(best_for(fitting), updates=20)\n" + code[at:]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(djepa.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "success of the random candidate" in done.stdout
    assert "fails where it abstains" in done.stdout
    alignment = djepa.load(tmp_path / "alignment")
    assert alignment.config.geometries == ("mine",)


def test_the_example_of_the_readme_runs() -> None:
    found = re.search(
        r"## Your own model\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert found
    rng, N, K, D = np.random.default_rng(0), 40, 8, 3
    given = {
        "names": [f"s{n}" for n in range(N)],
        "ids": np.tile(np.arange(K), (N, 1)),
        "costs": rng.random((N, K)),
        "last_latents": rng.normal(size=(N, K, D)),
        "goals": rng.normal(size=(N, D)),
        "success": rng.random((N, K)) < 0.4,
        "other_success": rng.random((10, K)) < 0.4,
    }
    for name in ("other", "new"):
        given[f"{name}_evidence"] = djepa.Evidence.from_arrays(
            start_ids=[f"{name}-{n}" for n in range(10)],
            candidate_ids=given["ids"][:10],
            costs={"mine": given["costs"][:10]},
            latents={"mine": given["last_latents"][:10]},
        )
    given["SHORT"] = replace(best_for(given["new_evidence"]), updates=5)
    exec(found[1].replace("fit(evidence, success)", "fit(evidence, success, config=SHORT)"), given)
    assert len(given["decision"].choice) == 10
