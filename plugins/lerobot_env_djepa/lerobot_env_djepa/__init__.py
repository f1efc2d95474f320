"""Importing this registers the environment type djepa with LeRobot."""

from djepa.interop.lerobot_env import CameraEnv, DJEPAEnv

__all__ = ["CameraEnv", "DJEPAEnv"]
