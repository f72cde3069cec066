"""The versions of the libraries that compute: they decide the bits of a result."""

from importlib.metadata import PackageNotFoundError, version

# What a flow uses. (With Numba, batches in float32 are drawn differently than without.)
NUMERICAL = ("iclflow", "jax", "jaxlib", "equinox", "diffrax", "optax", "numba")


def installed_versions(*packages: str) -> dict[str, str]:
    """The version of each package; "unknown" where it is not installed as one."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
