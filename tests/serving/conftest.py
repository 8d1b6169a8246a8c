"""The report's browser serves here too."""

from tests.reporting.conftest import browser

__all__ = ["browser"]
