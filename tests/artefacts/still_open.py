"""Edits that are met as they should not be, and where a mend belongs. A mended one goes.

Patterns are of what `trials` calls an edit: FILE/FIELD: EDIT.
"""

# Another value of these is another sound folder, to whose hash nothing is bound.
ANY = (
    "*threshold: negative",
    "*threshold: huge",  # of a gate: any finite number
    "*.tau: negative",
    "*.tau: huge",
    "*epsilon: huge",  # how far scores may move
    "*seed: huge",
    "about/versions.*: missing",
    "about/config.candidates: huge",  # and these two: nothing reads them but the profile of decoys
    "about/config.centres: huge",
    "about/config.shuffles: huge",
    "about/config.per_log: huge",  # at most so many
    "guarantee.json/starts: huge",
    "gates.json/limit.starts: huge",
    "gates.json/*candidate: huge",  # an ID
    "proposals.npz/*templates: a row fewer",  # as many demonstrations as there were
)
DEFAULT = "an absent field takes its default; folders of this version have all of them"
LAYOUT = "names, types and shapes of its arrays are not compared with a layout"
NARROW = "numbers of another type are rounded: compare it as models.weights.fill does"
UNBOUND = "artefacts.records.Manifest: made_from is {} where it is absent"
PARTLY = "align.store.load_alignment: weights of some geometries alone are taken"
NEVER = "align.gates.Gate: an absent threshold is `never`; records of gates need all three fields"
UNNAMED = "refused, but the error does not name the file"
HARM = "align.risk.Guarantee takes any numbers: 0 <= harmed <= changed <= starts, shares in (0, 1)"
SETTING = "align.driving_fit.Setting takes any numbers, not a point of the published grid alone"
OPEN: dict[str, dict[str, str]] = {
    "bank": {
        "about/config.*: missing": f"bank.schema.BankRecord.config: {DEFAULT}",
        "about/config.[cs]*: negative": "rollout.execute.CollectConfig: checked for decoys alone",
        "about/blocks.0.*": "bank.read.Bank: counts of blocks are not compared with anything",
        "about/drops.*": "bank.read.Bank: drops are not the sum of those of its blocks",
    },
    "weights": {
        "config.json/config.dropout: missing": f"models.lewm.LeWMConfig: {DEFAULT}",
        "config.json/planning.*": "models.tdjepa.PlanningCost: takes any numbers",
    },
    "alignment": {
        "manifest.json/made_from: missing": UNBOUND,
        "manifest.json/made_from.*: missing": PARTLY,
        "calibration.json/threshold: missing": NEVER,
        "config.json/align.operator.*: missing": f"align.operator.OperatorConfig: {DEFAULT}",
        "config.json/inputs: *": f"align.store.build_alignment: {UNNAMED}",
        "config.json/report.fusion.weights.*": "evidence.fusion.Fusion: weights are not convex",
        "model.safetensors/*: as *": f"align.store.build_alignment: {NARROW}",
    },
    "temporal": {
        "manifest.json/made_from: missing": UNBOUND,
        "manifest.json/made_from.*: missing": PARTLY,
        "calibration.json/threshold: missing": NEVER,
        "model.safetensors/*: as *": f"align.store.build_alignment: {NARROW}",
        "transport.safetensors/*": "lift.temporal.load_temporal: RuntimeError of load_state_dict",
    },
    "patch": {
        "patch.safetensors/*: as *": f"align.plastic.apply_patch: {NARROW}",
        "patch.safetensors/*": f"align.plastic.apply_patch: {UNNAMED}",
    },
    "suite": {
        "manifest.json/made_from: missing": UNBOUND,
        "manifest.json/made_from.*: missing": PARTLY,
        "mixtures.json/fusion: missing": "align.suite.load_suite: fewer fusions than its recipe",
        "mixtures.json/fusion.weights.*": "align.methods.Mixture: weights are not convex",
        "composition.json/threshold: *": "align.suite.load_suite: a threshold of any type, or none",
    },
    "planner": {
        "record/composition: missing": f"lift.file.PlannerRecord.composition: {DEFAULT}",
        "record/gate.threshold: missing": NEVER,
        "record/alignment.inputs: *": f"align.store.build_alignment: {UNNAMED}",
        "record/geometries.lewm: missing": f"lift.file.check_parts: {UNNAMED}",
        "arrays/operator.*: as *": f"align.store.build_alignment: {NARROW}",
    },
    "episodes": {"arrays/*": f"models.episodes.Shard.read: {LAYOUT}"},
    "control": {
        "about/config.*: missing": f"control.loop.ControlRecord.config: {DEFAULT}",
        "about/config.block: huge": "control.results.Episodes: not compared with the files",
        "about/config.episodes: huge": "control.results.Episodes: not compared with the names",
        "about/list_hash: missing": "control.results.Episodes: not compared with the names",
        "*decisions: no rows": "control.results.Episodes.decisions: fewer than were executed",
    },
    "visited": {
        "about/planner*": "control.visited.VISITED: its manifest has no type",
        "manifest.json/about*": "control.visited.VISITED: its manifest has no type",
        "pools/*": f"control.visited.read_visited: {LAYOUT}",
    },
    "driving bank": {
        "about/config.*: missing": f"bank.driving.TrafficRecord.config: {DEFAULT}",
        "about/config.*: negative": "rollout.driving.TrafficConfig: takes any numbers",
        "about/config.*: huge": "bank.driving.TrafficBank: logs, blocks and shards do not agree",
        "about/blocks*": "bank.driving.TrafficRecord.blocks: any numbers under any names, or none",
        "manifest.json/about.blocks*": "bank.driving.TrafficRecord.blocks: the same",
    },
    "bimanual bank": {
        "about/config.*: missing": f"bank.bimanual.BimanualRecord.config: {DEFAULT}",
        "about/config.*: negative": "rollout.bimanual.BimanualConfig: takes any numbers",
        "about/config.*: huge": "bank.bimanual.BimanualBank: starts and shards do not agree",
        "about/blocks*": "bank.bimanual.BimanualRecord.blocks: any numbers, any names",
        "decision/*": f"bank.bimanual.BimanualBank: {LAYOUT}",
        "outcome/*": f"bank.bimanual.BimanualBank: {LAYOUT}",
    },
    "recorded": {
        "about/*": "tasks.recorded.Recording: counts and sizes are not compared with the arrays",
        "frames/*": f"tasks.recorded.Recording: {LAYOUT}",
    },
    "fused readout": {"model.safetensors/*": f"align.driving_store.load_readout: {LAYOUT}"},
    "corrected readout": {
        "config.json/*: missing": f"align.driving_store.ReadoutRecord: {DEFAULT}",
        "config.json/*: negative": "align.driving_store.ReadoutRecord: any scale and epoch",
        "config.json/*: huge": "align.driving_store.ReadoutRecord: any scale and epoch",
        "model.safetensors/*": f"align.driving_store.load_readout: {LAYOUT}",
    },
    "anchored readout": {
        "config.json/*: missing": f"align.driving_store.ReadoutRecord: {DEFAULT}",
        "config.json/setting*: negative": SETTING,
        "config.json/setting*: huge": SETTING,
        "model.safetensors/*": f"align.driving_store.load_readout: {LAYOUT}",
    },
    "gates": {
        "gates.json/tasks.*: missing": "studies.bimanual_fits.GatesRecord: a task or gate is lost",
        "gates.json/*sign: *": "align.preserve.Threshold: a sign that is neither 1 nor -1",
        "gates.json/*candidate: negative": "align.preserve.Fixed: no ID is negative",
        "gates.json/limit.gate.*: missing": NEVER,
        "gates.json/limit.*: negative": HARM,
        "gates.json/limit.*: huge": HARM,
    },
    "certified gate": {
        "guarantee.json/gate.*: missing": NEVER,
        "guarantee.json/*: negative": HARM,
        "guarantee.json/*: huge": HARM,
    },
}
UNDOCUMENTED = (
    *("djepa-control", "djepa-visited", "djepa-traffic", "djepa-bimanual", "djepa-recorded"),
    *("djepa-driving-readout", "djepa-bimanual-gates", "djepa-certified-gate"),
    *("djepa-traffic-model", "djepa-bimanual-policy"),
)
