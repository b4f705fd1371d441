"""What a command did with a step journal, told to the project's audit log."""

import os
from pathlib import Path

from bernstein_cli.audit_options import audit_key_file
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.output import remark
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import BernsteinError
from bernstein_runtime.places import places_for


def record(sdd_dir: Path, fields: AuditFields) -> None:
    """Append an event through the journal. A project without an audit key keeps no audit log; an
    event that could not be appended is said, and changes nothing of what was done."""
    try:
        places = places_for(sdd_dir, os.environ)
        if not in_fleet(sdd_dir) and not audit_key_file(places, os.environ).is_file():
            return
        # What talks to services is loaded only where an event is written.
        from bernstein_client.connection import Services  # noqa: PLC0415 - see above

        with Services(sdd_dir) as services:
            services.macs.append_audit_event(fields)
    except BernsteinError as error:
        remark(f"the audit log does not have this {fields.event_type}: {error.message}")
