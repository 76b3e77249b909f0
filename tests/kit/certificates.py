"""Certificates for tests of TLS, made by the openssl command: NAME.pem and NAME.key in a folder of the test's."""

import os
import subprocess

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def _openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Certificates:
    """Two authorities, 'ca' and 'stranger', and what they sign."""

    def __init__(self, folder):
        self._folder = folder
        for name in ("ca", "stranger"):
            _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", self.key(name), "-out",
                     self.file(name), "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def file(self, name):
        return os.path.join(self._folder, f"{name}.pem")

    def key(self, name):
        return os.path.join(self._folder, f"{name}.key")

    def sign(self, name, signer="ca", names="DNS:localhost,IP:127.0.0.1"):
        """Makes NAME.pem and NAME.key."""
        request, extension = self.file(name) + ".csr", self.file(name) + ".names"
        with open(extension, "w", encoding="ascii") as file:
            # More than the names, because Python 3.13 goes by the letter of RFC 5280.
            file.write(f"subjectAltName={names}\nkeyUsage=digitalSignature\nbasicConstraints=CA:FALSE\n"
                       "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", self.key(name), "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.file(signer), "-CAkey", self.key(signer),
                 "-CAcreateserial", "-days", "2", "-extfile", extension, "-out", self.file(name))

    def lock(self, name, locked):
        """LOCKED.key is NAME.key under a passphrase."""
        _openssl("ec", "-in", self.key(name), "-aes128", "-passout", "pass:secret", "-out", self.key(locked))
