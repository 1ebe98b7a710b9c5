"""The one contract: what was seen on a node, as tables on one clock. Readers write it, everything else reads it."""
