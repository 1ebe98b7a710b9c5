"""Many nodes: which are sick, what they have in common, which jobs it killed, and the remedy in waves."""
