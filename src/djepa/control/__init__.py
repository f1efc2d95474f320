"""Closed loop: plan, execute a few controls, observe and replan until the goal is reached."""
