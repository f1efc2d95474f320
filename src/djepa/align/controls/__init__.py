"""Five control methods of the paper's main table, fitted on the same starts as plasticity."""
