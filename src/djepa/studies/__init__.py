"""Studies: the experiments that answer the paper's questions, beside the paper's figures."""
