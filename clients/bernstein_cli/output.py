"""The two ways out of every command: the verifier's, which is a distribution of its own, too."""

from bernstein_verify.output import (
    GREEN,
    RED,
    YELLOW,
    Printed,
    beside,
    document,
    document_with_rows,
    is_coloured,
    json_line,
    json_text,
    make_outputs_safe,
    printable,
    remark,
    say,
    with_outputs,
)

__all__ = [
    "GREEN",
    "RED",
    "YELLOW",
    "Printed",
    "beside",
    "document",
    "document_with_rows",
    "is_coloured",
    "json_line",
    "json_text",
    "make_outputs_safe",
    "printable",
    "remark",
    "say",
    "with_outputs",
]

PROGRAM = "bernstein"
