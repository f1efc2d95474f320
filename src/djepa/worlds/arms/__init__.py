"""Robot arms: a PiPER-class arm in MuJoCo, its kinematics, and the worlds it works in."""
