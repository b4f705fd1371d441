from bernstein_formats.dsse import preauth_encoding


def test_the_type_and_both_lengths_are_signed():
    assert preauth_encoding("t/é", b"ab") == b"DSSEv1 4 t/\xc3\xa9 2 ab"


def test_moving_a_byte_between_type_and_payload_changes_the_text():
    assert preauth_encoding("ab", b"c") != preauth_encoding("a", b"bc")
