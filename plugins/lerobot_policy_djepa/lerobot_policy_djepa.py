"""LeRobot imports installed packages whose names begin so; importing registers the policy."""

from djepa.interop.lerobot import DJEPAConfig, DJEPAPolicy, make_djepa_pre_post_processors

__all__ = ["DJEPAConfig", "DJEPAPolicy", "make_djepa_pre_post_processors"]
