"""What is known of a pool before anything is executed: label-free."""
