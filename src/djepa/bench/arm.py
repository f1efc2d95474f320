"""Latency of commands: to the simulated arm, and by the vendor's SDK over a virtual bus."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from djepa.bench.measure import Options, Row, Say, seconds_of
from djepa.worlds.arms import frames
from djepa.worlds.arms.device import Limits, MujocoBackend, PiperDevice
from djepa.worlds.arms.firmware import PiperFirmware
from djepa.worlds.arms.kinematics import end_pose
from djepa.worlds.arms.sdk import SdkBackend
from djepa.worlds.arms.simulated import HOME

CHANNEL = "djepa-bench"
COMMANDS = 50  # commands timed over the bus
HZ = "commands/s"


def bench_arm(options: Options, say: Say) -> Iterator[Row]:
    """Checked commands of the device, against the same command given to the back end alone."""
    wanted, seconds = np.array(HOME) + 0.01, options.seconds
    limits, pose = Limits(watchdog=3600.0), end_pose(wanted)
    say("measuring the simulated arm ...")
    with PiperDevice(MujocoBackend(), limits) as arm:
        yield _against(arm, "simulated arm, joints", lambda: arm.move_joints(wanted), seconds)
        yield _against(arm, "simulated arm, pose", lambda: arm.move_pose(pose), seconds)
    say("measuring piper_sdk over a virtual bus ...")
    with (
        PiperFirmware(CHANNEL) as firmware,
        PiperDevice(SdkBackend(CHANNEL, "virtual"), limits) as arm,
    ):
        yield _against(arm, "SDK, joints", lambda: arm.move_joints(wanted), seconds)
        yield _against(arm, "SDK, pose", lambda: arm.move_pose(pose), seconds)
        yield _arrival(arm, firmware, wanted)


def _against(arm: PiperDevice, what: str, command: Callable[[], object], seconds: float) -> Row:
    """Commands per second with all checks, and without."""
    state = arm.state()
    alone: Callable[[], object] = lambda: arm.backend.move_joints(state.joints, 1.0)  # noqa: E731
    if what.endswith("pose"):
        alone = lambda: arm.backend.move_pose(state.pose, 1.0)  # noqa: E731
    checked, plain = (seconds_of(work, seconds=seconds) for work in (command, alone))
    note = f"{1e6 * (checked - plain):.0f} µs for limits, workspace and speed"
    return Row(what, HZ, 1 / checked, 1 / plain, note)


def _arrival(arm: PiperDevice, firmware: PiperFirmware, wanted: np.ndarray) -> Row:
    """Time from the call until the firmware has the last frame; it reads the bus every 10 ms."""
    spent = []
    for _ in range(COMMANDS):
        before, began = firmware.received.get(frames.JOINTS[-1], 0), time.perf_counter()
        arm.move_joints(wanted)
        while firmware.received.get(frames.JOINTS[-1], 0) == before:
            time.sleep(1e-4)
        spent.append(time.perf_counter() - began)
    middle, slow = np.percentile(spent, [50, 95])
    note = (
        f"until the arm has it: median {1e3 * middle:.1f} ms, 95th percentile {1e3 * slow:.1f} ms"
    )
    return Row("SDK, joints, arrival", HZ, 1 / middle, note=note, details={"p95_s": float(slow)})
