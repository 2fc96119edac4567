"""What the official Python SDK may rely on, one function per promise. Stops at the first that is broken.

    STRIPE_API_BASE=http://127.0.0.1:8082 python sequences.py     against a mock gateway started with --events
    STRIPE_TEST_KEY=sk_test_… python sequences.py                 against Stripe's test mode, as far as that goes

CROSS_SDK_RUN=word joins sequence 17 with that of the Node SDK, which runs next with the same word: one no run has used.
"""

import hashlib
import hmac
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import stripe

from gateway import WEBHOOK_SECRET, Gateway, Purchase, Receiver, raises, wait_for

NEEDS_FAULTS = "needs faults"
NEEDS_AN_ADDRESS = "needs an address that Stripe can reach"
NEEDS_A_PROMISE = "needs a server that says how it compares requests"


def is_replay(answer):
    return answer.last_response.headers.get("idempotent-replayed") == "true"


def order_of(paid):
    return paid.metadata.to_dict().get("order_id")


def a_payment_succeeds_and_names_request_and_key(at):
    purchase = Purchase()
    paid = at.client().v1.payment_intents.create(purchase.params(), purchase.options)
    assert paid.status == "succeeded" and paid.amount_received == 4299
    assert paid.last_response.request_id.startswith("req_")
    assert paid.last_response.idempotency_key == purchase.key
    assert not is_replay(paid)


def the_same_key_replays_the_first_answer(at):
    purchase, client = Purchase(), at.client()
    first = client.v1.payment_intents.create(purchase.params(), purchase.options)
    again = client.v1.payment_intents.create(purchase.params(), purchase.options)
    assert again.last_response.body == first.last_response.body
    assert is_replay(again)
    assert again.last_response.headers["original-request"] == first.last_response.request_id


def the_same_key_with_another_amount_is_refused(at):
    purchase, client = Purchase(), at.client()
    client.v1.payment_intents.create(purchase.params(), purchase.options)
    other = purchase.params(amount=4300)
    error = raises(stripe.IdempotencyError, lambda: client.v1.payment_intents.create(other, purchase.options))
    assert error.http_status == 400 and error.code is None


def the_same_key_at_another_endpoint_is_refused(at):
    purchase, client = Purchase(), at.client()
    paid = client.v1.payment_intents.create(purchase.params(), purchase.options)
    refund = {"payment_intent": paid.id}
    error = raises(stripe.IdempotencyError, lambda: client.v1.refunds.create(refund, purchase.options))
    assert error.http_status == 400


def a_decline_is_a_result_and_is_replayed(at):
    purchase, client = Purchase(), at.client()
    declined = purchase.params(payment_method="pm_card_visa_chargeDeclinedInsufficientFunds")
    pay = lambda: client.v1.payment_intents.create(declined, purchase.options)
    first, again = raises(stripe.CardError, pay), raises(stripe.CardError, pay)
    assert (first.http_status, first.code) == (402, "card_declined")
    assert first.error.decline_code == "insufficient_funds"
    assert first.error.payment_intent.status == "requires_payment_method"
    assert again.http_body == first.http_body
    charges = client.v1.charges.list({"payment_intent": first.error.payment_intent.id})
    assert len(charges.data) == 1 and charges.data[0].failure_code == "card_declined"


def a_lost_answer_is_recovered_by_the_sdk_itself(at):
    for fault in ["drop_after", "rst_after"]:
        purchase = Purchase()
        paid = at.client().v1.payment_intents.create(purchase.params(fault), purchase.options)
        assert paid.status == "succeeded" and is_replay(paid), fault
        assert len(at.captures(purchase)) == 1, fault


def calls_at_once_under_one_key_charge_once(at):
    purchase, conflicts = Purchase(), at.conflicts()
    with ThreadPoolExecutor() as pool:
        create = lambda: at.client().v1.payment_intents.create(params, purchase.options)
        params, fired = purchase.params("latency_before_800"), at.fired("latency_before")
        first = pool.submit(create)
        wait_for("the key is in progress", lambda: at.fired("latency_before") > fired)
        others = [pool.submit(create) for _ in range(2)]
        ids = {paid.result().id for paid in [first, *others]}
    assert ids == {capture["payment_intent"] for capture in at.captures(purchase)} and len(ids) == 1
    assert at.conflicts() >= conflicts + 2, "the others met the key in progress, and tried again"


def a_key_in_progress_is_a_conflict(at):
    purchase, params = Purchase(), None
    with ThreadPoolExecutor() as pool:
        create = lambda: at.client(retries=0).v1.payment_intents.create(params, purchase.options)
        params, fired = purchase.params("latency_before_2000"), at.fired("latency_before")
        first = pool.submit(create)
        wait_for("the key is in progress", lambda: at.fired("latency_before") > fired)
        error = raises(stripe.APIError, create)
        assert first.result().status == "succeeded"
    # The SDK maps no code of a 409: it has to be read from the body.
    assert (error.http_status, error.code) == (409, None)
    assert error.error.code == "idempotency_key_in_use"


def a_429_is_retried_only_on_advice(at):
    purchase = Purchase()
    limited = purchase.params("http_429_before")
    create = lambda: at.client().v1.payment_intents.create(limited, purchase.options)
    # The fault meets the first arrival only: a retry of the SDK would have got through.
    assert raises(stripe.RateLimitError, create).http_status == 429
    assert at.captures(purchase) == []
    advised = Purchase()
    paid = at.client().v1.payment_intents.create(advised.params("lock_timeout_before"), advised.options)
    assert paid.status == "succeeded" and not is_replay(paid)


def a_503_before_execution_is_retried(at):
    purchase = Purchase()
    paid = at.client().v1.payment_intents.create(purchase.params("http_503_before"), purchase.options)
    assert paid.status == "succeeded" and not is_replay(paid)
    assert len(at.captures(purchase)) == 1


def a_recorded_500_may_have_charged_and_never_tells(at):
    purchase, client = Purchase(), at.client()
    create = lambda: client.v1.payment_intents.create(purchase.params("http_500_after"), purchase.options)
    first, again = raises(stripe.APIError, create), raises(stripe.APIError, create)
    assert first.http_status == again.http_status == 500 and again.http_body == first.http_body
    assert "idempotent-replayed" not in first.headers, "the SDK was told not to retry"
    assert again.headers["idempotent-replayed"] == "true"
    [capture] = at.captures(purchase)
    # Where a replay is of no use, looking is.
    assert client.v1.payment_intents.retrieve(capture["payment_intent"]).status == "succeeded"
    listed = client.v1.payment_intents.list({"created": {"gte": purchase.started_s}})
    assert any(order_of(paid) == purchase.order_id for paid in listed.auto_paging_iter())
    events = client.v1.events.list({"type": "payment_intent.succeeded"}).auto_paging_iter()
    assert any(event.request.idempotency_key == purchase.key for event in events)


def a_client_that_gave_up_waiting_is_charged_once(at):
    purchase = Purchase()
    impatient = at.client(timeout_s=1)
    paid = impatient.v1.payment_intents.create(purchase.params("latency_after_5000"), purchase.options)
    assert paid.status == "succeeded" and is_replay(paid)
    assert len(at.captures(purchase)) == 1


def half_an_answer_is_not_retried_and_the_same_key_recovers(at):
    purchase, client = Purchase(), at.client()
    create = lambda: client.v1.payment_intents.create(purchase.params("truncate_after"), purchase.options)
    raises(stripe.APIConnectionError, create)
    [capture] = at.captures(purchase)
    assert (capture["executions"], capture["replays"]) == (1, 0), "the SDK did not retry"
    paid = create()
    assert is_replay(paid) and paid.id == capture["payment_intent"]
    assert len(at.captures(purchase)) == 1


def a_refund_under_one_key_happens_once(at):
    purchase, client = Purchase(), at.client()
    paid = client.v1.payment_intents.create(purchase.params(), purchase.options)
    whole, options = {"payment_intent": paid.id}, {"idempotency_key": f"{purchase.key}-refund"}
    first, again = client.v1.refunds.create(whole, options), client.v1.refunds.create(whole, options)
    assert first.id == again.id and first.amount == 4299 and first.status == "succeeded"
    assert is_replay(again)
    error = raises(stripe.InvalidRequestError, lambda: client.v1.refunds.create(whole))
    assert (error.http_status, error.code) == (400, "charge_already_refunded")
    assert [refund.id for refund in client.v1.refunds.list(whole).data] == [first.id]


def every_way_of_looking_finds_each_payment_once(at):
    purchase, client = Purchase(), at.client()
    made = []
    for serial in range(7):
        options = {"idempotency_key": f"{purchase.key}-{serial}"}
        made.insert(0, client.v1.payment_intents.create(purchase.params(), options).id)
    assert client.v1.payment_intents.retrieve(made[0]).id == made[0]
    mine = lambda intents: [paid.id for paid in intents if order_of(paid) == purchase.order_id]
    recent = {"created": {"gte": purchase.started_s}, "limit": 3}
    assert mine(client.v1.payment_intents.list(recent).auto_paging_iter()) == made
    newer = client.v1.payment_intents.list({"limit": 3, "ending_before": made[-1]})
    assert mine(newer.auto_paging_iter()) == made[-2::-1], "the SDK walks backwards from the oldest"
    by_order = {"query": f"metadata['order_id']:'{purchase.order_id}'", "limit": 3}
    search = lambda: sorted(mine(client.v1.payment_intents.search(by_order).auto_paging_iter()))
    wait_for("the search knows them all", lambda: search() == sorted(made))
    succeeded = {"type": "payment_intent.succeeded", "limit": 3, "created": {"gte": purchase.started_s}}
    keys = lambda: [event.request.idempotency_key for event in client.v1.events.list(succeeded).auto_paging_iter()]
    each_once = lambda heard: all(heard.count(f"{purchase.key}-{serial}") == 1 for serial in range(7))
    wait_for("one event tells of each", lambda: each_once(keys()))


def a_webhook_is_believed_only_as_it_was_signed(at):
    purchase, client = Purchase(), at.client()
    with Receiver() as receiver:
        at.control("POST", "webhooks", {"url": receiver.url, "secret": WEBHOOK_SECRET})
        try:
            paid = client.v1.payment_intents.create(purchase.params(), purchase.options)
            body, signature = receiver.next()
        finally:
            at.control("DELETE", "webhooks")
    event = client.construct_event(body, signature, WEBHOOK_SECRET)
    assert event.type == "payment_intent.succeeded" and event.data.object.id == paid.id
    assert event.request.idempotency_key == purchase.key
    old_s = int(time.time()) - 301
    signed = hmac.new(WEBHOOK_SECRET.encode(), b"%d." % old_s + body, hashlib.sha256).hexdigest()
    for forged in [
        (body.replace(b"4299", b"1"), signature, WEBHOOK_SECRET),
        (body, signature, "whsec_of_another"),
        (body, f"t={old_s},v1={signed}", WEBHOOK_SECRET),
    ]:
        raises(stripe.SignatureVerificationError, lambda: client.construct_event(*forged))
    # The last one was only too old.
    assert client.construct_event(body, f"t={old_s},v1={signed}", WEBHOOK_SECRET, tolerance=600).id == event.id


def what_one_sdk_sent_the_other_repeats(at):
    """The first half: this SDK pays. The Node SDK sends the same in its own way, and meets the record."""
    run = os.environ["CROSS_SDK_RUN"]
    written = {"metadata": {"note": "two cups & a saucer, 5 € = ½ price", "order_id": run}, "description": "grüner Tee"}
    params = {"amount": 890, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True} | written
    paid = at.client().v1.payment_intents.create(params, {"idempotency_key": f"cross-sdk-{run}"})
    assert paid.metadata.to_dict() == written["metadata"] and paid.description == written["description"]


# Number, promise, and what keeps it from running against Stripe.
SEQUENCES = [
    (1, a_payment_succeeds_and_names_request_and_key, None),
    (2, the_same_key_replays_the_first_answer, None),
    (3, the_same_key_with_another_amount_is_refused, None),
    (4, the_same_key_at_another_endpoint_is_refused, None),
    (5, a_decline_is_a_result_and_is_replayed, None),
    (6, a_lost_answer_is_recovered_by_the_sdk_itself, NEEDS_FAULTS),
    (7, calls_at_once_under_one_key_charge_once, NEEDS_FAULTS),
    (8, a_key_in_progress_is_a_conflict, NEEDS_FAULTS),
    (9, a_429_is_retried_only_on_advice, NEEDS_FAULTS),
    (10, a_503_before_execution_is_retried, NEEDS_FAULTS),
    (11, a_recorded_500_may_have_charged_and_never_tells, NEEDS_FAULTS),
    (12, a_client_that_gave_up_waiting_is_charged_once, NEEDS_FAULTS),
    (13, half_an_answer_is_not_retried_and_the_same_key_recovers, NEEDS_FAULTS),
    (14, a_refund_under_one_key_happens_once, None),
    (15, every_way_of_looking_finds_each_payment_once, None),
    (16, a_webhook_is_believed_only_as_it_was_signed, NEEDS_AN_ADDRESS),
    (17, what_one_sdk_sent_the_other_repeats, NEEDS_A_PROMISE),
]


def why_not(at, promise, missing):
    if at.is_stripe and missing:
        return f"not run against Stripe: {missing}"
    if promise is what_one_sdk_sent_the_other_repeats and not os.environ.get("CROSS_SDK_RUN"):
        return "not run: needs CROSS_SDK_RUN and both SDKs"
    return None


def main():
    if not __debug__:
        sys.exit("Run this without -O: it would prove nothing.")
    at = Gateway.from_environment()
    print(f"stripe-python {stripe.VERSION} against {at.base or 'Stripe test mode'}", flush=True)
    for number, promise, missing in SEQUENCES:
        words = promise.__name__.replace("_", " ")
        if reason := why_not(at, promise, missing):
            print(f"{number:>2} {reason} ({words})", flush=True)
            continue
        try:
            promise(at)
        except BaseException:
            print(f"{number:>2} FAILED {words}", flush=True)
            raise
        print(f"{number:>2} ok {words}", flush=True)


if __name__ == "__main__":
    main()
