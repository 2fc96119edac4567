// What the official Node SDK may rely on, one function per promise. Stops at the first that is broken.
//
//     STRIPE_API_BASE=http://127.0.0.1:8082 node sequences.js     against a mock gateway started with --events
//     STRIPE_TEST_KEY=sk_test_… node sequences.js                 against Stripe's test mode, as far as that goes
//
// CROSS_SDK_RUN=word joins sequence 17 with that of the Python SDK, which ran before with the same word.

const assert = require('node:assert/strict');
const Stripe = require('stripe');
const {Gateway, Purchase, WEBHOOK_SECRET, fails, receiver, waitFor} = require('./gateway.js');

const {errors} = Stripe;
const NEEDS_FAULTS = 'needs faults';
const NEEDS_AN_ADDRESS = 'needs an address that Stripe can reach';
const NEEDS_A_PROMISE = 'needs a server that says how it compares requests';

const isReplay = (answer) => answer.lastResponse.headers['idempotent-replayed'] === 'true';
const mine = (purchase, intents) => intents.filter((it) => it.metadata.order_id === purchase.orderId).map((it) => it.id);
/** Every page of a list or a search. The SDK wants a bound. */
const all = (list) => list.autoPagingToArray({limit: 10_000});

async function aPaymentSucceedsAndNamesRequestAndKey(at) {
  const purchase = new Purchase();
  const paid = await at.client().paymentIntents.create(purchase.params(), purchase.options);
  assert.deepEqual([paid.status, paid.amount_received], ['succeeded', 4299]);
  assert.match(paid.lastResponse.requestId, /^req_/);
  assert.equal(paid.lastResponse.idempotencyKey, purchase.key);
  assert.ok(!isReplay(paid));
}

async function theSameKeyReplaysTheFirstAnswer(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const first = await client.paymentIntents.create(purchase.params(), purchase.options);
  const again = await client.paymentIntents.create(purchase.params(), purchase.options);
  assert.deepEqual({...again}, {...first});
  assert.ok(isReplay(again));
  assert.equal(again.lastResponse.headers['original-request'], first.lastResponse.requestId);
}

async function theSameKeyWithAnotherAmountIsRefused(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  await client.paymentIntents.create(purchase.params(), purchase.options);
  const other = purchase.params({amount: 4300});
  const error = await fails(errors.StripeIdempotencyError, () => client.paymentIntents.create(other, purchase.options));
  assert.deepEqual([error.statusCode, error.code], [400, undefined]);
}

async function theSameKeyAtAnotherEndpointIsRefused(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const paid = await client.paymentIntents.create(purchase.params(), purchase.options);
  const refund = () => client.refunds.create({payment_intent: paid.id}, purchase.options);
  assert.equal((await fails(errors.StripeIdempotencyError, refund)).statusCode, 400);
}

async function aDeclineIsAResultAndIsReplayed(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const declined = purchase.params({payment_method: 'pm_card_visa_chargeDeclinedInsufficientFunds'});
  const pay = () => client.paymentIntents.create(declined, purchase.options);
  const first = await fails(errors.StripeCardError, pay);
  const again = await fails(errors.StripeCardError, pay);
  assert.deepEqual([first.statusCode, first.code], [402, 'card_declined']);
  assert.equal(first.decline_code, 'insufficient_funds');
  assert.equal(first.payment_intent.status, 'requires_payment_method');
  // Beside the answer itself, `raw` holds what belongs to this exchange alone.
  const body = ({headers, requestId, statusCode, ...rest}) => rest;
  assert.deepEqual(body(again.raw), body(first.raw));
  const charges = await client.charges.list({payment_intent: first.payment_intent.id});
  assert.deepEqual(charges.data.map((charge) => charge.failure_code), ['card_declined']);
}

async function aLostAnswerIsRecoveredByTheSdkItself(at) {
  for (const fault of ['drop_after', 'rst_after']) {
    const purchase = new Purchase();
    const paid = await at.client().paymentIntents.create(purchase.params({fault}), purchase.options);
    assert.ok(paid.status === 'succeeded' && isReplay(paid), fault);
    assert.equal((await at.captures(purchase)).length, 1, fault);
  }
}

async function callsAtOnceUnderOneKeyChargeOnce(at) {
  const [purchase, conflicts] = [new Purchase(), await at.conflicts()];
  const params = purchase.params({fault: 'latency_before_800'});
  const create = () => at.client().paymentIntents.create(params, purchase.options);
  const fired = await at.fired('latency_before');
  const first = create();
  await waitFor('the key is in progress', async () => (await at.fired('latency_before')) > fired);
  const answers = await Promise.all([first, create(), create()]);
  const captures = await at.captures(purchase);
  assert.equal(captures.length, 1);
  for (const paid of answers) assert.equal(paid.id, captures[0].payment_intent);
  assert.ok((await at.conflicts()) >= conflicts + 2, 'the others met the key in progress, and tried again');
}

async function aKeyInProgressIsAConflict(at) {
  const purchase = new Purchase();
  const params = purchase.params({fault: 'latency_before_2000'});
  const create = () => at.client({maxNetworkRetries: 0}).paymentIntents.create(params, purchase.options);
  const fired = await at.fired('latency_before');
  const first = create();
  await waitFor('the key is in progress', async () => (await at.fired('latency_before')) > fired);
  const error = await fails(errors.StripeAPIError, create);
  assert.deepEqual([error.statusCode, error.code], [409, 'idempotency_key_in_use']);
  assert.equal((await first).status, 'succeeded');
}

async function a429IsRetriedOnlyOnAdvice(at) {
  const purchase = new Purchase();
  const limited = purchase.params({fault: 'http_429_before'});
  const create = () => at.client().paymentIntents.create(limited, purchase.options);
  // The fault meets the first arrival only: a retry of the SDK would have got through.
  assert.equal((await fails(errors.StripeRateLimitError, create)).statusCode, 429);
  assert.deepEqual(await at.captures(purchase), []);
  const advised = new Purchase();
  const paid = await at.client().paymentIntents.create(advised.params({fault: 'lock_timeout_before'}), advised.options);
  assert.ok(paid.status === 'succeeded' && !isReplay(paid));
}

async function a503BeforeExecutionIsRetried(at) {
  const purchase = new Purchase();
  const paid = await at.client().paymentIntents.create(purchase.params({fault: 'http_503_before'}), purchase.options);
  assert.ok(paid.status === 'succeeded' && !isReplay(paid));
  assert.equal((await at.captures(purchase)).length, 1);
}

async function aRecorded500MayHaveChargedAndNeverTells(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const create = () => client.paymentIntents.create(purchase.params({fault: 'http_500_after'}), purchase.options);
  const first = await fails(errors.StripeAPIError, create);
  const again = await fails(errors.StripeAPIError, create);
  assert.deepEqual([first.statusCode, again.statusCode], [500, 500]);
  assert.equal(first.headers['idempotent-replayed'], undefined, 'the SDK was told not to retry');
  assert.equal(again.headers['idempotent-replayed'], 'true');
  const captures = await at.captures(purchase);
  assert.equal(captures.length, 1);
  // Where a replay is of no use, looking is.
  assert.equal((await client.paymentIntents.retrieve(captures[0].payment_intent)).status, 'succeeded');
  const listed = await all(client.paymentIntents.list({created: {gte: purchase.startedS}}));
  assert.deepEqual(mine(purchase, listed), [captures[0].payment_intent]);
  const events = await all(client.events.list({type: 'payment_intent.succeeded'}));
  assert.ok(events.some((event) => event.request.idempotency_key === purchase.key));
}

async function aClientThatGaveUpWaitingIsChargedOnce(at) {
  const purchase = new Purchase();
  const impatient = at.client({timeout: 1000});
  const paid = await impatient.paymentIntents.create(purchase.params({fault: 'latency_after_5000'}), purchase.options);
  assert.ok(paid.status === 'succeeded' && isReplay(paid));
  assert.equal((await at.captures(purchase)).length, 1);
}

async function halfAnAnswerIsNotRetriedAndTheSameKeyRecovers(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const create = () => client.paymentIntents.create(purchase.params({fault: 'truncate_after'}), purchase.options);
  await fails(errors.StripeConnectionError, create);
  const [capture] = await at.captures(purchase);
  assert.deepEqual([capture.executions, capture.replays], [1, 0], 'the SDK did not retry');
  const paid = await create();
  assert.ok(isReplay(paid) && paid.id === capture.payment_intent);
  assert.equal((await at.captures(purchase)).length, 1);
}

async function aRefundUnderOneKeyHappensOnce(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const paid = await client.paymentIntents.create(purchase.params(), purchase.options);
  const [whole, options] = [{payment_intent: paid.id}, {idempotencyKey: `${purchase.key}-refund`}];
  const first = await client.refunds.create(whole, options);
  const again = await client.refunds.create(whole, options);
  assert.deepEqual([again.id, first.amount, first.status], [first.id, 4299, 'succeeded']);
  assert.ok(isReplay(again));
  const error = await fails(errors.StripeInvalidRequestError, () => client.refunds.create(whole));
  assert.deepEqual([error.statusCode, error.code], [400, 'charge_already_refunded']);
  assert.deepEqual((await client.refunds.list(whole)).data.map((refund) => refund.id), [first.id]);
}

async function everyWayOfLookingFindsEachPaymentOnce(at) {
  const [purchase, client] = [new Purchase(), at.client()];
  const made = [];
  for (let serial = 0; serial < 7; serial++) {
    const options = {idempotencyKey: `${purchase.key}-${serial}`};
    made.unshift((await client.paymentIntents.create(purchase.params(), options)).id);
  }
  assert.equal((await client.paymentIntents.retrieve(made[0])).id, made[0]);
  const recent = {created: {gte: purchase.startedS}, limit: 3};
  assert.deepEqual(mine(purchase, await all(client.paymentIntents.list(recent))), made);
  const newer = await all(client.paymentIntents.list({limit: 3, ending_before: made.at(-1)}));
  assert.deepEqual(mine(purchase, newer), made.slice(0, -1).reverse(), 'the SDK walks backwards from the oldest');
  const byOrder = {query: `metadata['order_id']:'${purchase.orderId}'`, limit: 3};
  await waitFor('the search knows them all', async () => {
    const found = mine(purchase, await all(client.paymentIntents.search(byOrder)));
    return found.sort().join() === [...made].sort().join();
  });
  const succeeded = {type: 'payment_intent.succeeded', limit: 3, created: {gte: purchase.startedS}};
  await waitFor('one event tells of each', async () => {
    const keys = (await all(client.events.list(succeeded))).map((event) => event.request.idempotency_key);
    return made.every((_, serial) => keys.filter((key) => key === `${purchase.key}-${serial}`).length === 1);
  });
}

async function aWebhookIsBelievedOnlyAsItWasSigned(at) {
  const [purchase, {webhooks, paymentIntents}, endpoint] = [new Purchase(), at.client(), await receiver()];
  await at.control('POST', 'webhooks', {url: endpoint.url, secret: WEBHOOK_SECRET});
  let paid, heard;
  try {
    paid = await paymentIntents.create(purchase.params(), purchase.options);
    heard = await endpoint.heard;
  } finally {
    await at.control('DELETE', 'webhooks');
    endpoint.close();
  }
  const {body, signature} = heard;
  const event = webhooks.constructEvent(body, signature, WEBHOOK_SECRET);
  assert.deepEqual([event.type, event.data.object.id], ['payment_intent.succeeded', paid.id]);
  assert.equal(event.request.idempotency_key, purchase.key);
  const timestamp = Math.floor(Date.now() / 1000) - 301;
  const old = webhooks.generateTestHeaderString({payload: body.toString(), secret: WEBHOOK_SECRET, timestamp});
  for (const forged of [
    [body.toString().replaceAll('4299', '1'), signature, WEBHOOK_SECRET],
    [body, signature, 'whsec_of_another'],
    [body, old, WEBHOOK_SECRET],
  ]) {
    await fails(errors.StripeSignatureVerificationError, async () => webhooks.constructEvent(...forged));
  }
  // The last one was only too old.
  assert.equal(webhooks.constructEvent(body, old, WEBHOOK_SECRET, 600).id, event.id);
}

/** The second half: the Python SDK paid. This one sends the same in its own way, and meets the record. */
async function whatOneSdkSentTheOtherRepeats(at) {
  const run = process.env.CROSS_SDK_RUN;
  const metadata = {order_id: run, note: 'two cups & a saucer, 5 € = ½ price'};
  const written = {description: 'grüner Tee', confirm: true, payment_method: 'pm_card_visa', metadata};
  const params = {...written, currency: 'usd', amount: 890};
  const paid = await at.client().paymentIntents.create(params, {idempotencyKey: `cross-sdk-${run}`});
  assert.ok(isReplay(paid), 'the Python SDK runs first, with the same CROSS_SDK_RUN');
  assert.deepEqual([{...paid.metadata}, paid.description], [metadata, 'grüner Tee']);
}

// Number, promise, and what keeps it from running against Stripe.
const SEQUENCES = [
  [1, aPaymentSucceedsAndNamesRequestAndKey],
  [2, theSameKeyReplaysTheFirstAnswer],
  [3, theSameKeyWithAnotherAmountIsRefused],
  [4, theSameKeyAtAnotherEndpointIsRefused],
  [5, aDeclineIsAResultAndIsReplayed],
  [6, aLostAnswerIsRecoveredByTheSdkItself, NEEDS_FAULTS],
  [7, callsAtOnceUnderOneKeyChargeOnce, NEEDS_FAULTS],
  [8, aKeyInProgressIsAConflict, NEEDS_FAULTS],
  [9, a429IsRetriedOnlyOnAdvice, NEEDS_FAULTS],
  [10, a503BeforeExecutionIsRetried, NEEDS_FAULTS],
  [11, aRecorded500MayHaveChargedAndNeverTells, NEEDS_FAULTS],
  [12, aClientThatGaveUpWaitingIsChargedOnce, NEEDS_FAULTS],
  [13, halfAnAnswerIsNotRetriedAndTheSameKeyRecovers, NEEDS_FAULTS],
  [14, aRefundUnderOneKeyHappensOnce],
  [15, everyWayOfLookingFindsEachPaymentOnce],
  [16, aWebhookIsBelievedOnlyAsItWasSigned, NEEDS_AN_ADDRESS],
  [17, whatOneSdkSentTheOtherRepeats, NEEDS_A_PROMISE],
];

function whyNot(at, promise, missing) {
  if (at.isStripe && missing) return `not run against Stripe: ${missing}`;
  const needsBoth = promise === whatOneSdkSentTheOtherRepeats;
  return needsBoth && !process.env.CROSS_SDK_RUN ? 'not run: needs CROSS_SDK_RUN and both SDKs' : undefined;
}

async function main() {
  const at = await Gateway.fromEnvironment();
  console.log(`stripe-node ${Stripe.PACKAGE_VERSION} against ${at.base ?? 'Stripe test mode'}`);
  for (const [number, promise, missing] of SEQUENCES) {
    const words = promise.name.replace(/[A-Z]|\d+/g, (letter) => ` ${letter.toLowerCase()}`);
    const line = String(number).padStart(2);
    const reason = whyNot(at, promise, missing);
    if (reason) {
      console.log(`${line} ${reason} (${words})`);
      continue;
    }
    try {
      await promise(at);
    } catch (error) {
      console.log(`${line} FAILED ${words}`);
      throw error;
    }
    console.log(`${line} ok ${words}`);
  }
  // After half an answer the SDK keeps its timer of 80 s running, and with it the process.
  process.exit();
}

main();
