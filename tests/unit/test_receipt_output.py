"""Where a receipt and its COSE file may be written: over nothing that belongs to another."""

from pathlib import Path

import pytest

from bernstein_cli.receipt_output import check_output, write_receipt
from bernstein_cli.withheld_copy import write_withheld_copy
from bernstein_client.values import BuiltReceipt
from bernstein_formats.errors import Conflict
from bernstein_verify.questions import Question
from bernstein_verify.receipts import check_receipt

RECEIPTS = Path(__file__).parents[1] / "vectors" / "data" / "receipts"
NAMES = ("b01-minimal", "b02-journal-and-spine")


def build(name):
    """What makes the receipt of a vector."""
    expected = RECEIPTS / name / "expected"

    def ask(write):
        write((expected / "run-receipt.json").read_bytes())
        cose = (expected / "run-receipt.cose").read_bytes()
        return BuiltReceipt(name, "", 0, "", 0, "", "", "", cose, 0)

    return ask


def holds(path):
    """Whether a receipt verifies, and the COSE file that is found for it."""
    verdict = check_receipt(str(path), Question()).verdict
    return verdict is not None and verdict.ok and verdict.cose_verified


def written(path, name):
    cose = write_receipt(path, build(name))[1]
    assert holds(path)
    return cose.name


def test_the_cose_file_has_the_peers_name_until_another_receipt_has_it(tmp_path):
    first, second = (tmp_path / name for name in ("first.json", "second.json"))
    assert written(first, NAMES[0]) == "run-receipt.cose"
    assert written(second, NAMES[1]) == "second.cose"
    assert holds(first)
    assert written(second, NAMES[0]) == "second.cose"
    assert written(first, NAMES[1]) == "run-receipt.cose"
    assert holds(second)


def test_a_build_that_was_quicker_keeps_its_cose_file(tmp_path):
    def ask(write):
        write_receipt(tmp_path / "quick.json", build(NAMES[1]))
        return build(NAMES[0])(write)

    assert write_receipt(tmp_path / "slow.json", ask)[1].name == "slow.cose"
    assert all(holds(tmp_path / name) for name in ("quick.json", "slow.json"))


@pytest.mark.parametrize("name", ["run-receipt.json", "other.json", "other"])
def test_a_cose_file_of_that_name_that_is_anothers_stays(tmp_path, name):
    receipt = tmp_path / name
    cose = receipt.with_name(name.removesuffix(".json") + ".cose")
    cose.write_bytes((RECEIPTS / NAMES[1] / "expected" / "run-receipt.cose").read_bytes())
    for _ in range(2):
        with pytest.raises(Conflict, match=r"no COSE file of .* and stays"):
            check_output(receipt)
        receipt.write_bytes((RECEIPTS / NAMES[0] / "expected" / "run-receipt.json").read_bytes())
    receipt.unlink()
    with pytest.raises(Conflict, match=r"no COSE file of .* and stays"):
        write_withheld_copy(b"", "0", receipt, 1)


def test_a_receipt_is_not_written_where_a_cose_file_is_meant(tmp_path):
    with pytest.raises(Conflict, match="named like a COSE file"):
        check_output(tmp_path / "run-receipt.cose")
