// Where the sequences run: a mock gateway, or Stripe's own test mode.
//
// STRIPE_API_BASE  the mock's base URL. It should serve nobody else: the sequences point its webhooks at themselves.
// STRIPE_TEST_KEY  a key of Stripe's test mode, sk_test_…

const assert = require('node:assert/strict');
const {randomUUID} = require('node:crypto');
const http = require('node:http');
const {setTimeout: sleep} = require('node:timers/promises');
const Stripe = require('stripe');

const WEBHOOK_SECRET = 'whsec_of_the_sequences';
// Any key of test mode is good enough for the mock.
const MOCK_KEY = 'sk_test_123';
// Only bounds a hang; Stripe's search takes up to a minute to learn of a payment.
const PATIENCE_MS = 120_000;

class Gateway {
  constructor(base, key) {
    this.base = base;
    this.key = key;
  }

  static async fromEnvironment() {
    const {STRIPE_API_BASE: base, STRIPE_TEST_KEY: key} = process.env;
    if (Boolean(base) === Boolean(key)) {
      refuse("Set STRIPE_API_BASE (a mock gateway) or STRIPE_TEST_KEY (Stripe's test mode), one of the two.");
    }
    if (key && !key.startsWith('sk_test_')) {
      refuse('STRIPE_TEST_KEY must start with sk_test_: these sequences charge cards.');
    }
    const gateway = new Gateway(base?.replace(/\/$/, ''), key ?? MOCK_KEY);
    if (base) {
      const asked = gateway.control('GET', 'webhooks');
      const {endpoint: told} = await asked.catch((error) =>
        refuse(`No mock gateway answers at ${base}: ${error.cause?.message ?? error.message}`),
      );
      if (told) refuse(`This gateway tells ${told} of its events. Start one for these sequences alone.`);
    }
    return gateway;
  }

  get isStripe() {
    return !this.base;
  }

  /** Retries twice unless told otherwise. */
  client(options = {}) {
    if (this.isStripe) return new Stripe(this.key, options);
    const {hostname, port, protocol} = new URL(this.base);
    return new Stripe(this.key, {host: hostname, port, protocol: protocol.replace(':', ''), ...options});
  }

  /** The mock's control plane. */
  async control(method, path, body) {
    const answer = await fetch(`${this.base}/_mock/${path}`, {method, body: body && JSON.stringify(body)});
    assert.equal(answer.status, 200, path);
    return answer.json();
  }

  /** What the mock took for this purchase, whatever it answered. */
  async captures(purchase) {
    return (await this.control('GET', `ledger?reference=${purchase.orderId}`)).captures;
  }

  async conflicts() {
    return (await this.control('GET', 'stats')).conflicts;
  }

  async fired(fault) {
    return (await this.control('GET', 'stats')).faults[fault];
  }
}

/** One grinder, its order, and the key of its first attempt. */
class Purchase {
  constructor() {
    this.orderId = `order-${randomUUID()}`;
    this.key = `key-${randomUUID()}`;
    this.startedS = Math.floor(Date.now() / 1000);
    this.options = {idempotencyKey: this.key};
  }

  /** The mock meets the first arrival of a key with the fault that its metadata asks for. */
  params({fault, ...changes} = {}) {
    return {
      amount: 4299,
      currency: 'usd',
      payment_method: 'pm_card_visa',
      payment_method_types: ['card'],
      confirm: true,
      metadata: {order_id: this.orderId, ...(fault && {mock_fault: fault})},
      ...changes,
    };
  }
}

/** A webhook endpoint that resolves to the first it hears: raw body and signature. */
async function receiver() {
  let hear;
  const heard = new Promise((resolve) => (hear = resolve));
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.end();
    hear({body: Buffer.concat(chunks), signature: request.headers['stripe-signature']});
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return {url: `http://127.0.0.1:${server.address().port}/hooks`, heard: within(PATIENCE_MS, heard), close};
}

/** The promise, or a failure when it takes too long. */
function within(ms, promise) {
  const late = new AbortController();
  const timer = sleep(ms, undefined, {signal: late.signal, ref: false}).then(() => assert.fail('waited in vain'));
  return Promise.race([promise, timer.catch((error) => assert.equal(error.name, 'AbortError'))]).finally(() => late.abort());
}

async function waitFor(awaited, holds) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, `waited in vain until ${awaited}`);
    await sleep(20);
  }
}

/** The error of this class that the call fails with. */
async function fails(kind, call) {
  let answer;
  try {
    answer = await call();
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  return assert.fail(`no ${kind.name}, but ${JSON.stringify(answer)}`);
}

function refuse(message) {
  console.error(message);
  process.exit(1);
}

module.exports = {Gateway, Purchase, WEBHOOK_SECRET, fails, receiver, waitFor};
