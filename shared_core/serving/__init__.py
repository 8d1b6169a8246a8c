"""The report's page with live data and buttons, served on loopback (extra ``ui``)."""

from shared_core.serving.application import make_application
from shared_core.serving.proposals import Proposals

__all__ = ["Proposals", "make_application"]
