"""Stack samples: where the node spends its time, and the names of what it was found in."""
