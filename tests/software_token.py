"""A PKCS #11 token in software (SoftHSM), with an Ed25519 key that cannot leave it."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pkcs11
from pkcs11.util.ec import encode_named_curve_parameters

LIBRARY = next(
    (each for each in Path("/usr/lib").glob("**/softhsm/libsofthsm2.so")), Path("libsofthsm2.so")
)
PIN = "canary-pin-4711"
ED25519 = "1.3.101.112"


@dataclass(frozen=True, slots=True)
class SoftwareToken:
    """A token of its own in a folder, and the file of its PIN."""

    folder: Path
    label: str

    @property
    def pin_file(self) -> Path:
        return self.folder / "pin"

    @property
    def configuration(self) -> Path:
        return self.folder / "softhsm2.conf"

    def uri(self, key: str, **more: str) -> str:
        """Of a key in it; `more` replaces parts."""
        parts = {"token": self.label, "object": key, **more}
        module = parts.pop("module", str(LIBRARY))
        pin = parts.pop("pin", f"file:{self.pin_file}")
        path = ";".join(f"{name}={text}" for name, text in parts.items() if text)
        return f"pkcs11:{path}?module-path={module}&pin-source={pin}"

    def make_key(self, name: str, *, is_extractable: bool = False) -> None:
        token = pkcs11.lib(str(LIBRARY)).get_token(token_label=self.label)
        with token.open(user_pin=PIN, rw=True) as session:
            curve = {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters(ED25519)}
            domain = session.create_domain_parameters(pkcs11.KeyType.EC_EDWARDS, curve, local=True)
            domain.generate_keypair(
                mechanism=pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN,
                store=True,
                label=name,
                private_template={pkcs11.Attribute.EXTRACTABLE: is_extractable},
            )


def make_token(folder: Path, label: str) -> SoftwareToken:
    """SoftHSM finds it by SOFTHSM2_CONF, which is set here, and looks for tokens once a process."""
    token = SoftwareToken(folder, label)
    (folder / "tokens").mkdir(parents=True)
    token.configuration.write_text(
        f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n"
    )
    token.pin_file.write_text(f"{PIN}\n")
    token.pin_file.chmod(0o600)
    os.environ["SOFTHSM2_CONF"] = str(token.configuration)
    subprocess.run(
        f"softhsm2-util --init-token --free --label {label} --pin {PIN} --so-pin 87654321".split(),
        check=True,
        capture_output=True,
    )
    pkcs11.lib(str(LIBRARY)).reinitialize()
    return token
