"""Stacks of a recording, written for other tools: folded, pprof, speedscope, Perfetto, Firefox Profiler."""
