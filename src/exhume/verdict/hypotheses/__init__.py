"""What may be behind what: one file a kind of finding.

To add a hypothesis, write a file with `HYPOTHESIS = Hypothesis("its-kind", ...)` and name it in registry.py. It says, of one
kind of finding: what may follow from it (a `Rule` for each kind of effect: a function of two findings that looks for evidence
of its own and says how sure it is and why, or None), what would disprove that, in which words it is a cause, who the culprits
are, what can be done about it, and what speaks against it. It opens nothing and remembers nothing. tests/incidents holds all
of them against incidents as they were told in public; `exhume lab score` against real ones.

Confidence, so that all mean the same: 0.99 was seen on that core for nearly all of that time, or was said by the driver itself;
0.95 was seen there for most of it; 0.8 fits by name, place and number; 0.6 fits,
and what would prove it was not looked at; 0.4 both were there, little more; below 0.25 it is no link.
"""
