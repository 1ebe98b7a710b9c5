"""How much a counter has grown, where its series begin with their first event: of the first one `increase` does not know."""

_SCRAPED = "exhume_agent_batches_total"


def grown(metric: str, by: str, labels: str = "", over: str = "1h") -> str:
    """PromQL for the sum of it. A series that there was fewer times than its agent was scraped has begun since, with the first
    event or with the first after a restart of the agent, and all that it counts is new. One that Prometheus has only begun to
    see, or could not see for a while, is there as often as its agent."""
    series, scraped = (f"{name}{{{labels}}}" if labels else name for name in (metric, _SCRAPED))
    begun = f"count_over_time({series}[{over}]) < on (NODE) group_left () max by (NODE) (count_over_time({scraped}[{over}]))"
    increase = f"round(increase({series}[{over}]))"
    return (
        f"sum by ({by}) (\n"
        f"  (max_over_time({series}[{over}]) unless {series} offset {over} and ({begun}))\n"
        "or\n"
        f"  ({series} and ({begun})) > {increase}\n"
        "or\n"
        f"  {increase}\n"
        ")"
    )
