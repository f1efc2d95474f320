"""Physics you can restore: execute controls, render frames, judge success."""
