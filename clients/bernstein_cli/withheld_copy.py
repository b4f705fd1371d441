"""Writing a copy of a receipt that withholds the payloads of some of its rows."""

from pathlib import Path

from bernstein_cli.output import remark
from bernstein_cli.receipt_output import refuse_cose_of_another
from bernstein_cli.whole_file import write_new_file
from bernstein_formats.withholding import parse_steps, withheld_copy


def write_withheld_copy(receipt: bytes, steps: str, out: Path, row_count: int) -> None:
    """Write the copy, over nothing that is there. Raises Conflict, InvalidInput, StoreFailed."""
    refuse_cose_of_another(out)
    write_new_file(out, withheld_copy(receipt, parse_steps(steps, row_count)))
    remark(f"the copy is {out}; give it away instead of the receipt, which says everything")
    remark(
        "the hash of each withheld payload stays in it: whoever guesses a payload can check the"
        " guess; and only bernstein-services and bernstein-verify read such a copy"
    )
