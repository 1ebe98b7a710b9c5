"""What the kinds of findings are to a verdict: causes, symptoms, or one tenant's own affair."""

# What a node suffers from; further along the chain, later in the list.
SYMPTOMS = ("core-saturated", "soft-lockup", "napi-starved", "nic-reset")
# What hurts a node by being there, the surest first.
PAINS = ("reclaim", "printk-flood", "page-fault-storm", "cpu-full", "writeback-stall", "irq-imbalance", "steal")
# What may hurt it sooner or later, or has: without a symptom that follows from it, it is a condition, not yet a cause of harm.
CONDITIONS = ("memcg-leak", "zombie-memcgs", "cgroup-dirs-leak", "memcg-walk", "crash-loop", "oom", "defunct-processes")
CAUSES = (*CONDITIONS, *PAINS)
# One tenant's own affair: told, but no reason to call the node sick.
TENANTS = ("cpu-throttled", "unused-agent")
ALL = (*SYMPTOMS, *CAUSES, *TENANTS)
# Below this nobody is accused: the chain is shown as possible.
ACCUSES = 0.5
