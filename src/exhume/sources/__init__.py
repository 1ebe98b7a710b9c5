"""Readers: one file a subject, each takes the root it reads from, none has a threshold."""
