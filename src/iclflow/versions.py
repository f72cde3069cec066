"""Which versions compute: they decide the bits of a result."""

from importlib.metadata import PackageNotFoundError, version

# What a flow is made of.
NUMERICAL = ("iclflow", "jax", "jaxlib", "equinox", "diffrax", "optax")


def installed(*packages: str) -> dict[str, str]:
    """The version of each package; "unknown" where it is not installed as one."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
