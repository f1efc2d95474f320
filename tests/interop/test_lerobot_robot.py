"""The arm as a robot of LeRobot, against LeRobot's own base class."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scratch import needs

from djepa.errors import DjepaError

real = needs("lerobot")
pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = [*(f"joint_{i}.pos" for i in range(1, 7)), "gripper.pos"]
PLUGIN = Path(__file__).parents[2] / "plugins" / "lerobot_robot_djepa_piper"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, imported as LeRobot imports it."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    return import_module(PLUGIN.name)


def connected(plugin: Any, **settings: Any) -> Any:
    robot = plugin.DjepaPiper(plugin.DjepaPiperConfig(id="test", **settings))
    robot.connect()
    return robot


@real
def test_it_is_found_as_lerobot_finds_robots(plugin: Any) -> None:
    from lerobot.robots.config import RobotConfig
    from lerobot.robots.robot import Robot
    from lerobot.robots.utils import make_robot_from_config

    assert RobotConfig.get_choice_class("djepa_piper") is plugin.DjepaPiperConfig
    robot = make_robot_from_config(plugin.DjepaPiperConfig(id="test"))
    assert isinstance(robot, plugin.DjepaPiper)
    assert isinstance(robot, Robot)
    assert not getattr(type(robot), "__abstractmethods__", None)  # nothing of the ABC is missing
    assert list(robot.action_features) == NAMES  # also before it is connected
    assert list(robot.observation_features) == NAMES
    assert not robot.is_connected


@real
def test_actions_move_the_arm_and_say_what_was_sent(plugin: Any) -> None:
    robot = connected(plugin, joint_speed=1e3)
    seen = robot.get_observation()
    assert list(seen) == NAMES
    action = {**seen, "joint_1.pos": 20.0, "gripper.pos": 30.0}
    sent = robot.send_action(action)
    assert sent["joint_1.pos"] == pytest.approx(20.0)
    for _ in range(20):
        robot.send_action(action)
    after = robot.get_observation()
    assert after["joint_1.pos"] == pytest.approx(20.0, abs=0.3)
    assert after["gripper.pos"] == pytest.approx(30.0, abs=1.0)
    assert robot.send_action({**action, "gripper.pos": 500.0})["gripper.pos"] == 70.0
    with pytest.raises(DjepaError, match=r"lacks joint_1\.pos"):
        robot.send_action(dict.fromkeys(NAMES[1:], 0.0))
    robot.disconnect()
    assert not robot.is_connected
    with pytest.raises(DjepaError, match="not connected"):
        robot.get_observation()


@real
@pytest.mark.filterwarnings("ignore:The 'bustype':DeprecationWarning")
def test_it_drives_the_arm_on_the_bus(plugin: Any) -> None:
    from djepa.worlds.arms.firmware import PiperFirmware

    with PiperFirmware("virtual-lerobot") as firmware:
        robot = connected(plugin, channel="virtual-lerobot", interface="virtual", joint_speed=1e3)
        sent = robot.send_action({**robot.get_observation(), "joint_1.pos": 10.0})
        assert sent["joint_1.pos"] == pytest.approx(10.0)
        while np.abs(firmware.arm.target[0] - np.deg2rad(10.0)) > 1e-4:
            pass
        robot.disconnect()
