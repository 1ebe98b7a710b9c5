"""The scenarios, one file a subject; `catalogue` has them all."""
