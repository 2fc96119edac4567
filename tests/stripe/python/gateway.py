"""Where the sequences run: a mock gateway, or Stripe's own test mode.

STRIPE_API_BASE  the mock's base URL. It should serve nobody else: the sequences point its webhooks at themselves.
STRIPE_TEST_KEY  a key of Stripe's test mode, sk_test_…
"""

import json
import os
import queue
import sys
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import stripe

WEBHOOK_SECRET = "whsec_of_the_sequences"
# Any key of test mode is good enough for the mock.
MOCK_KEY = "sk_test_123"
# Only bounds a hang; Stripe's search takes up to a minute to learn of a payment.
PATIENCE_S = 120


class Gateway:
    def __init__(self, base, key):
        self.base, self.key = base, key

    @classmethod
    def from_environment(cls):
        base, key = os.environ.get("STRIPE_API_BASE"), os.environ.get("STRIPE_TEST_KEY")
        if bool(base) == bool(key):
            sys.exit("Set STRIPE_API_BASE (a mock gateway) or STRIPE_TEST_KEY (Stripe's test mode), one of the two.")
        if key and not key.startswith("sk_test_"):
            sys.exit("STRIPE_TEST_KEY must start with sk_test_: these sequences charge cards.")
        gateway = cls(base.rstrip("/") if base else None, key or MOCK_KEY)
        if base:
            try:
                told = gateway.control("GET", "webhooks")["endpoint"]
            except (OSError, ValueError) as error:
                sys.exit(f"No mock gateway answers at {base}: {error}")
            if told:
                sys.exit(f"This gateway tells {told} of its events. Start one for these sequences alone.")
        return gateway

    @property
    def is_stripe(self):
        return self.base is None

    def client(self, retries=2, timeout_s=80):
        """StripeClient does not retry unless told to."""
        return stripe.StripeClient(
            self.key,
            base_addresses={"api": self.base} if self.base else None,
            max_network_retries=retries,
            http_client=stripe.RequestsClient(timeout=timeout_s),
        )

    def control(self, method, path, body=None):
        """The mock's control plane."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}/_mock/{path}", data=data, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def captures(self, purchase):
        """What the mock took for this purchase, whatever it answered."""
        return self.control("GET", f"ledger?reference={purchase.order_id}")["captures"]

    def conflicts(self):
        return self.control("GET", "stats")["conflicts"]

    def fired(self, fault):
        return self.control("GET", "stats")["faults"][fault]


class Purchase:
    """One grinder, its order, and the key of its first attempt."""

    def __init__(self):
        self.order_id, self.key = f"order-{uuid.uuid4()}", f"key-{uuid.uuid4()}"
        self.started_s = int(time.time())

    def params(self, fault=None, **changes):
        """The mock meets the first arrival of a key with the fault that its metadata asks for."""
        metadata = {"order_id": self.order_id} | ({"mock_fault": fault} if fault else {})
        grinder = {
            "amount": 4299,
            "currency": "usd",
            "payment_method": "pm_card_visa",
            "payment_method_types": ["card"],
            "confirm": True,
            "metadata": metadata,
        }
        return grinder | changes

    @property
    def options(self):
        return {"idempotency_key": self.key}


class Receiver:
    """A webhook endpoint that keeps what it hears: raw bodies and their signatures."""

    def __enter__(self):
        self.heard = heard = queue.Queue()

        class Hear(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                heard.put((body, self.headers["Stripe-Signature"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Hear)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks"
        return self

    def __exit__(self, *_):
        self.server.shutdown()

    def next(self):
        return self.heard.get(timeout=PATIENCE_S)


def wait_for(awaited, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {awaited}"
        time.sleep(0.02)


def raises(kind, call):
    """The error of this kind that the call raises."""
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer}")
