"""A key service for trying plug-ins: it makes a key when it starts, and signs until it is ended.

python key_service.py /run/kms.sock
"""

import socketserver
import sys

from cryptography.hazmat.primitives.asymmetric import ed25519

KEY = ed25519.Ed25519PrivateKey.generate()  # noqa: TID251 - the service's own, not the signer's


class Answer(socketserver.StreamRequestHandler):
    """`public`, or `sign` and then what to sign."""

    def handle(self) -> None:
        asked = self.rfile.readline()
        if asked == b"public\n":
            self.wfile.write(KEY.public_key().public_bytes_raw())
        elif asked == b"sign\n":
            self.wfile.write(KEY.sign(self.rfile.read()))


if __name__ == "__main__":
    with socketserver.ThreadingUnixStreamServer(sys.argv[1], Answer) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()
