"""What to say when a Python package is missing: which of the project's extras brings it."""

from typing import Final

_OWN: Final = ("yaie", "yaie_api", "yaie_kernels", "yaie_local", "yaie_operator", "yaie_router")


def is_foreign(error: ModuleNotFoundError) -> bool:
    """Whether a package of somebody else is missing, not a module of ours."""
    return bool(error.name) and str(error.name).partition(".")[0] not in _OWN


def missing(what: str, error: ModuleNotFoundError, extra: str) -> str:
    """One sentence: what needs which package, and how to get it."""
    package = str(error.name).partition(".")[0]
    return (
        f"{what} needs the Python package {package}, which is not installed. In the folder of the "
        f'project run: pip install -e ".[{extra}]"'
    )
