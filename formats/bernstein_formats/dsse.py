"""The envelope text that DSSE signs, so that a signature covers the payload's type as well."""


def preauth_encoding(payload_type: str, payload: bytes) -> bytes:
    """The signed bytes of a payload: both lengths count bytes (DSSE v1.0, protocol section)."""
    type_bytes = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(type_bytes), type_bytes, len(payload), payload)
