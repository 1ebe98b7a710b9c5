"""The one loop that drives readers into a recording: seconds for a check, hours for a flight recorder."""
