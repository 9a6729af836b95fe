"""The tuning-record store: values, durable storage, files in and out.

Importing this package imports no database library; `Store` and its kin are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from records.address import Address
from records.errors import StoreError
from records.owner import described, new_owner
from records.record import JOB_STATES, MEMORIES, STATUSES, Job, Record, candidate_key, utc_now
from records.tellings import Glance, Rules

if TYPE_CHECKING:
    from records.audit import Examined
    from records.bundles import Wanted, origins, publish, pull
    from records.exchange import export_records, export_sound, import_records, merge
    from records.files import Exported, Imported
    from records.prune import Pruned, Pruning
    from records.salvage import Repaired, repair
    from records.store import Store

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
