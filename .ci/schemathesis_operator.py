"""Prints an operator's token, signed with the secret in the file that is named: there is no command for one."""

import base64
import hashlib
import hmac
import json
import sys
import time


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


secret = open(sys.argv[1], "rb").read().strip()
claims = {"iss": "checkout", "sub": "operator", "exp": int(time.time()) + 3600}
said = b".".join(encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "HS256"}, claims))
print((said + b"." + encoded(hmac.new(secret, said, hashlib.sha256).digest())).decode())
