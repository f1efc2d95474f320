"""Traffic: a car drives one of several trajectories among recorded or generated road users."""
