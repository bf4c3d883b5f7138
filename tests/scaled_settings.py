"""Settings for properties with expensive examples: fewer than others get, more in a search."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

__all__ = ["scaled_settings"]


def scaled_settings(examples: int, **options: Any) -> settings:
    """Return settings with so many examples; in a search, as many times more as others get.

    In `make test` it is as many times fewer.
    """
    most, usual = settings().max_examples, settings.get_profile("default").max_examples
    shared = [HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=max(1, examples * most // usual), suppress_health_check=shared, **options
    )
