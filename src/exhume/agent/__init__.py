"""The standing service: the recorder in trigger mode, the detectors on a cycle, metrics, alerts, profiles out."""
