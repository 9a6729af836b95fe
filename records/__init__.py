"""The tuning-record store: values, durable storage, files in and out.

Importing this package imports none of its modules: each is loaded on first use, so that no database
library is for what needs none, and two threads may import whichever they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from records.address import Address
    from records.audit import Examined
    from records.bundles import Wanted, origins, publish, pull
    from records.errors import StoreError
    from records.exchange import export_records, export_sound, import_records, merge
    from records.files import Exported, Imported
    from records.owner import described, new_owner
    from records.prune import Pruned, Pruning
    from records.record import JOB_STATES, MEMORIES, STATUSES, Job, Record, candidate_key, utc_now
    from records.salvage import Repaired, repair
    from records.store import Store
    from records.tellings import Glance, Rules

__all__ = [
    "JOB_STATES",
    "MEMORIES",
    "STATUSES",
    "Address",
    "Examined",
    "Exported",
    "Glance",
    "Imported",
    "Job",
    "Pruned",
    "Pruning",
    "Record",
    "Repaired",
    "Rules",
    "Store",
    "StoreError",
    "Wanted",
    "candidate_key",
    "described",
    "export_records",
    "export_sound",
    "import_records",
    "merge",
    "new_owner",
    "origins",
    "publish",
    "pull",
    "repair",
    "utc_now",
]

_LAZY = {
    "Address": "records.address",
    "StoreError": "records.errors",
    "described": "records.owner",
    "new_owner": "records.owner",
    "JOB_STATES": "records.record",
    "MEMORIES": "records.record",
    "STATUSES": "records.record",
    "Job": "records.record",
    "Record": "records.record",
    "candidate_key": "records.record",
    "utc_now": "records.record",
    "Glance": "records.tellings",
    "Rules": "records.tellings",
    "Store": "records.store",
    "Examined": "records.audit",
    "Wanted": "records.bundles",
    "origins": "records.bundles",
    "publish": "records.bundles",
    "pull": "records.bundles",
    "Exported": "records.files",
    "Imported": "records.files",
    "Pruned": "records.prune",
    "Pruning": "records.prune",
    "Repaired": "records.salvage",
    "export_records": "records.exchange",
    "export_sound": "records.exchange",
    "import_records": "records.exchange",
    "merge": "records.exchange",
    "repair": "records.salvage",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
