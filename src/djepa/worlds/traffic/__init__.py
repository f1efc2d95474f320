"""Traffic: a car follows one of several trajectories among recorded or generated road users."""
