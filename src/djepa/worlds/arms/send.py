"""Send a chosen candidate to an arm, as it was chosen."""

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.worlds.arms.device import PiperDevice
from djepa.worlds.arms.table import ACTIONS, SECONDS, servo_targets
from djepa.worlds.checks import as_controls
from djepa.worlds.protocol import Floats


def send(arm: PiperDevice, controls: npt.ArrayLike, opening: float) -> Floats:
    """Execute (H, 4) controls of the arm world; returns the (H, 7) targets that were sent.

    `opening` is the last commanded gap. A command that the device would clip is no longer the
    chosen one: the arm is then held and an error names the command.
    """
    actions = as_controls("A candidate", (None, ACTIONS), controls)
    servo = np.append(arm.target, opening)
    targets = servo_targets(servo, actions[None])[0, 1:]
    for h, target in enumerate(targets):
        joints, gap = arm.move_joints(target[:6]), arm.grip(float(target[6]))
        if not np.array_equal(np.append(joints, gap), target):
            arm.backend.hold()
            raise DjepaError(
                f"Control {h} of the candidate was cut by the device's limits, and the arm is "
                "held. Widen `Limits`, or search within them."
            )
        arm.wait(SECONDS)
    return targets
