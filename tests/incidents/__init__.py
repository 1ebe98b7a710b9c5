"""Incidents as they were told in public, made of numbers: what exhume would have recorded, and what a right verdict is."""
