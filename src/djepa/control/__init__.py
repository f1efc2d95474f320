"""Closed loop: plan, execute a few controls, look again, until the goal is reached."""
