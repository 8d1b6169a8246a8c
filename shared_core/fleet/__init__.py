"""Dreams of many banks or tenants: in parallel with Ray (extra ``ray``), or one after the other without."""

from shared_core.fleet.config import FleetConfig
from shared_core.fleet.finding import jobs_of_collections, jobs_of_tenants
from shared_core.fleet.fleet import DreamFleet
from shared_core.fleet.jobs import FleetJob, read_jobs
from shared_core.fleet.outcome import FleetOutcome, FleetReport

__all__ = [
    "DreamFleet",
    "FleetConfig",
    "FleetJob",
    "FleetOutcome",
    "FleetReport",
    "jobs_of_collections",
    "jobs_of_tenants",
    "read_jobs",
]
