"""What was recorded, on disk; outcomes kept apart from everything a decision may see."""
