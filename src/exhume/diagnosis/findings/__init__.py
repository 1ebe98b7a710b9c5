"""Detectors, one file a kind of finding: pure functions of a recording and the thresholds. A detector opens no file."""
