"""How well a share is known that was counted."""


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval (Wilson) of the share of which `hits` of `count` were found."""
    from scipy.stats import binomtest

    found = binomtest(hits, count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)
