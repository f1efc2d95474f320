"""The table in front of the arm, as MuJoCo XML: a T to push, or two cubes to stack.

The table's top is z = 0 and the arm stands at the origin, facing along x. Two cameras see the
middle of the table: `front` from the far side, `top` from above.
"""

from functools import lru_cache
from typing import Any

from djepa.worlds.arms.piper import arm_xml, load_mujoco, scene_xml

CUBE = 0.04  # m, side
BAR, STEM, THICK = (0.12, 0.03), (0.03, 0.09), 0.03  # of the T, m: along x and y; its height
DT = 0.004  # s of an integration
MIDDLE = (0.34, 0.0)  # of the table
# The origin of the T is the centre of gravity of bar and stem.
CENTRE = (BAR[0] * BAR[1] * 0.0 - STEM[0] * STEM[1] * (BAR[1] + STEM[1]) / 2) / (
    BAR[0] * BAR[1] + STEM[0] * STEM[1]
)
PIECES = (((0.0, -CENTRE), BAR), ((0.0, -(BAR[1] + STEM[1]) / 2 - CENTRE), STEM))  # place, size
RED, BLUE, ORANGE = "0.85 0.15 0.12 1", "0.15 0.3 0.85 1", "0.95 0.55 0.1 1"

TABLE = f"""
<light pos='0.3 0 1.5' dir='0 0 -1' diffuse='0.35 0.35 0.35' ambient='0.25 0.25 0.25'
 specular='0.1 0.1 0.1'/>
<geom name='table' type='box' size='0.45 0.45 0.02' pos='{MIDDLE[0]} {MIDDLE[1]} -0.02'
 rgba='0.78 0.76 0.72 1' friction='0.6 0.005 0.0001'/>
<camera name='front' pos='0.85 0.25 0.42' mode='targetbody' target='middle' fovy='44'/>
<body name='middle' pos='{MIDDLE[0]} {MIDDLE[1]} 0.04'/>
<camera name='top' pos='{MIDDLE[0]} 0 0.95' xyaxes='0 -1 0 1 0 0' fovy='32'/>
"""


def objects_xml(task: str) -> str:
    """The bodies on the table."""
    if task == "push":
        return _body("tee", "".join(_box(*piece) for piece in PIECES))
    half = CUBE / 2
    return "".join(
        _body(
            name,
            f"<geom type='box' size='{half} {half} {half}' mass='0.05' rgba='{colour}' "
            "friction='1.0 0.02 0.0005' condim='4'/>",
        )
        for name, colour in (("upper", RED), ("lower", BLUE))
    )


@lru_cache(maxsize=4)
def load_scene(task: str) -> tuple[Any, Any]:
    """MuJoCo and the model of a task."""
    engine = load_mujoco("The arm world")
    extra = f"<option timestep='{DT}'/><visual><global offwidth='640' offheight='640'/></visual>"
    xml = scene_xml((arm_xml(),), TABLE + objects_xml(task), extra)
    model = engine.MjModel.from_xml_string(xml)
    model.vis.quality.offsamples = 0
    return engine, model


def _body(name: str, geoms: str) -> str:
    return f"<body name='{name}'><freejoint name='{name}'/>{geoms}</body>"


def _box(place: tuple[float, float], size: tuple[float, float]) -> str:
    share = size[0] * size[1] / sum(x * y for _, (x, y) in PIECES)
    return (
        f"<geom type='box' pos='{place[0]} {place[1]} 0' mass='{0.15 * share}' "
        f"size='{size[0] / 2} {size[1] / 2} {THICK / 2}' rgba='{ORANGE}' "
        "friction='0.5 0.005 0.0001'/>"
    )
