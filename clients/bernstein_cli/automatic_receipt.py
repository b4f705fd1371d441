"""The receipt that is made when a run ends, where the peer's variables name a key to sign with.

It is an extra: whatever goes wrong is said, and the run's outcome stays what it was.
"""

import os
import shlex
from collections.abc import Mapping

from bernstein_cli.once_signer import once_signer
from bernstein_cli.output import YELLOW, remark
from bernstein_cli.recording_scan import refuse_recorded_secrets
from bernstein_cli.secret_scan import refuse_secrets
from bernstein_cli.signing_key import choose_key
from bernstein_client.connection import Services
from bernstein_client.values import BuiltReceipt
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.disk import in_words


def make_automatic_receipt(
    services: Services, run_id: str, environ: Mapping[str, str] = os.environ
) -> BuiltReceipt | None:
    """Build and sign the receipt of a finished run; None without a key, or when it failed."""
    key = choose_key(None, None, "", environ)
    if key.is_resident:
        return None
    try:
        if services.is_remote:
            raise InvalidInput(
                "receipts of a fleet's runs are signed by its signer, not by a key of this host"
            )
        rows = services.journal.read_journal(run_id)
        refuse_secrets(f"the journal of run {run_id}", rows)
        refuse_recorded_secrets(services, run_id)
        with once_signer(key, services.places, environ) as signer:
            return services.journal.build_receipt(run_id, signer)
    except BernsteinError as error:
        text, reason = error.message, error.reason
    except OSError as error:
        text, reason = in_words(error), "STORE_FAILED"
    remark(f"bernstein: no receipt of run {run_id}: {text} [{reason}]", YELLOW)
    workdir = shlex.quote(str(services.places.sdd_dir.parent))
    if not services.is_remote:
        remark(f"make it later with `bernstein verify run {run_id} -w {workdir}`")
    return None
