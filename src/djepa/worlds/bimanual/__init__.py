"""Two six-joint arms with grippers at a table: four tasks, in MuJoCo."""
