// The base of any policy in JavaScript: it connects, keeps the experiment's state, and reconnects.
// The contract is protos/hopyard/v1/policy.proto; docs/remote-policies.md describes it.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const AGAIN_MS = 300;
const AGAIN = new Set([
  grpc.status.UNAVAILABLE,
  grpc.status.CANCELLED,
  grpc.status.DEADLINE_EXCEEDED,
  grpc.status.UNKNOWN,
  grpc.status.RESOURCE_EXHAUSTED,
]);

const policyToken = process.env.HOPYARD_POLICY_TOKEN; // set if the scheduler started this process
delete process.env.HOPYARD_POLICY_TOKEN; // not for child processes

/**
 * The token for the scheduler: of this policy process, if the scheduler started it; else the user token, from the folder `secrets` next
 * to the scheduler's socket or in the folder above, from the variable HOPYARD_USER_TOKEN, or from the file that
 * HOPYARD_USER_TOKEN_FILE names. null: no scheduler has listened on the socket yet.
 */
function findToken(server) {
  if (policyToken) return policyToken;
  const folders = [];
  if (server.startsWith('unix:')) {
    const folder = path.dirname(server.slice('unix:'.length));
    folders.push(...[folder, path.dirname(folder)].map((place) => path.join(place, 'secrets')));
  }
  const { HOPYARD_USER_TOKEN: token, HOPYARD_USER_TOKEN_FILE: named } = process.env;
  const near = folders.map((folder) => path.join(folder, 'user.token')).find((file) => fs.existsSync(file));
  const file = near ?? (token ? undefined : named);
  if (file) return fs.readFileSync(file, 'utf8').trim();
  if (token) return token.trim();
  if (folders.length > 0 && !folders.some((folder) => fs.existsSync(folder))) return null;
  throw new Error(`there is no token for ${server}; set HOPYARD_USER_TOKEN_FILE to a copy of secrets/user.token of its data directory`);
}

/** The experiment as the state changes add up to: jobs, slots, experiments and curves are Maps by id. */
class State {
  constructor() {
    this.made = 0;
    this.share = 0;
    this.jobs = new Map();
    this.slots = new Map();
    this.experiments = new Map();
    this.curves = new Map(); // job -> Map(position -> metrics)
    this.incumbent = null;
  }

  apply(change) {
    switch (change.change) {
      case 'job':
        this.jobs.set(change.job.id, change.job);
        break;
      case 'job_gone':
        this.jobs.delete(change.job_gone);
        this.curves.delete(change.job_gone);
        break;
      case 'slot':
        this.slots.set(change.slot.id, change.slot);
        break;
      case 'slot_gone':
        this.slots.delete(change.slot_gone);
        break;
      case 'share':
        this.share = change.share;
        break;
      case 'experiment':
        this.experiments.set(change.experiment.id, change.experiment);
        break;
      case 'curve': {
        const { job, whole, points } = change.curve;
        if (whole || !this.curves.has(job)) this.curves.set(job, new Map());
        for (const point of points) this.curves.get(job).set(point.position, point.metrics);
        break;
      }
      case 'incumbent':
        this.incumbent = change.incumbent;
        break;
      case 'jobs_made':
        this.made = change.jobs_made;
        break;
      default: // A part of the state that this policy does not use.
    }
  }

  /** How many jobs are in any of these states, such as 'PENDING'. */
  count(...states) {
    let found = 0;
    for (const job of this.jobs.values()) if (states.includes(job.state.slice('JOB_STATE_'.length))) found += 1;
    return found;
  }

  /** How many jobs of experiments that run are PENDING or SUSPENDED, also those that wait before their next try. */
  queued() {
    const running = (job) => !this.experiments.get(job.experiment).paused;
    const idle = [...this.jobs.values()].filter((job) => /_(PENDING|SUSPENDED)$/.test(job.state));
    return idle.filter(running).length;
  }

  /** Jobs that wait for a slot, the first in the queue first. */
  idleJobs() {
    const idle = [...this.jobs.values()].filter((job) => job.queued > 0);
    return idle.sort((a, b) => (b.priority ?? 0) - (a.priority ?? 0) || a.queued - b.queued);
  }

  /** Slots that a run may be placed on, in order of id. */
  idleSlots() {
    const slots = [...this.slots.values()];
    const placed = slots.filter((slot) => !slot.idle && !slot.draining).length;
    const idle = slots.filter((slot) => slot.idle && !slot.reserved);
    idle.sort((a, b) => (a.id < b.id ? -1 : 1));
    return idle.slice(0, Math.max(this.share - placed, 0));
  }

  /** The terms of the experiment. */
  get terms() {
    return [...this.experiments.values()][0];
  }

  /**
   * A value of the metric as policies compare it: larger is better, and -Infinity if it is not finite. If the range of the metric is known,
   * 0 is its worst and 1 its best value.
   */
  rated(value) {
    if (!Number.isFinite(value)) return -Infinity;
    const { metric, low, high } = this.terms;
    const maximise = metric.mode === 'METRIC_MODE_MAX';
    const known = high - low > 0 && high - low < Infinity; // false if either is undefined
    if (!known) return maximise ? value : -value;
    const [worst, best] = maximise ? [low, high] : [high, low];
    return Math.min(Math.max((value - worst) / (best - worst), -Number.MAX_VALUE), Number.MAX_VALUE);
  }

  /** The rated values of a job's reports, in order of position; reports without the metric are left out. */
  ratings(job) {
    const { name } = this.terms.metric;
    const reports = [...(this.curves.get(job) ?? new Map())].sort(([a], [b]) => a - b);
    return reports.filter(([, metrics]) => name in metrics).map(([, metrics]) => this.rated(metrics[name]));
  }

  /** Jobs that may still be created. */
  jobsLeft() {
    let left = 0;
    for (const experiment of this.experiments.values()) left += experiment.jobs_left;
    return left;
  }
}

/** One experiment's policy and what it remembers; it outlives streams that break. */
class Instance {
  constructor(Policy) {
    this.Policy = Policy;
    this.experiment = '';
    this.memory = '';
    this.last = null;
  }

  welcome(message) {
    this.experiment = message.experiment;
    this.memory = message.memory;
    if (Number(message.answered) > 0) return;
    this.state = new State();
    this.policy = new this.Policy(JSON.parse(message.parameters_json));
    this.last = null;
  }

  answer(call) {
    if (this.last === null || this.last.number !== call.number) {
      for (const change of call.changes) this.state.apply(change);
      try {
        this.last = { gang: 1, ...this.policy.answer(this.state, call), number: call.number };
      } catch (error) {
        this.last = { number: call.number, error: String(error.stack || error) };
      }
    }
    return this.last;
  }
}

function review(Policy, message) {
  try {
    return new Policy(JSON.parse(message.parameters_json)).review(message.experiment);
  } catch (error) {
    return { error: error.message };
  }
}

/**
 * Serves a policy until the process ends, or the scheduler refuses it.
 *
 * Policy is a class: `new Policy(parameters)` throws an Error for parameters that it does not take, `review(experiment)` returns a
 * PolicyReviewed, and `answer(state, upCall)` the fields of an Answer.
 */
function serve({ Policy, name, server, protos = path.join(__dirname, '..', '..', 'protos') }) {
  const definition = loader.loadSync('hopyard/v1/policy.proto', {
    includeDirs: [protos],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  });
  const { PolicyService } = grpc.loadPackageDefinition(definition).hopyard.v1;
  const client = new PolicyService(server, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': 64 * 1024 * 1024,
    'grpc.max_send_message_length': 64 * 1024 * 1024,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 2000,
  });

  function dial(instance) {
    let token;
    try {
      token = findToken(server);
    } catch (error) {
      console.error(`error: ${error.message}`);
      process.exit(1);
    }
    if (token === null) {
      setTimeout(() => dial(instance), AGAIN_MS);
      return;
    }
    let waits = instance.experiment === '';
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${token}`);
    const stream = client.Drive(metadata);
    const hello = { policy: name, experiment: instance.experiment, memory: instance.memory };
    stream.write({ hello: { ...hello, answered: instance.last === null ? 0 : instance.last.number } });
    stream.on('data', (response) => {
      if (response.message === 'up_call') {
        stream.write({ answer: instance.answer(response.up_call) });
      } else if (response.message === 'review') {
        stream.write({ reviewed: review(Policy, response.review) });
      } else if (response.message === 'welcome') {
        instance.welcome(response.welcome);
        if (waits) dial(new Instance(Policy)); // The next experiment uses another stream.
        waits = false;
      }
    });
    stream.on('error', () => {}); // The status is handled elsewhere.
    stream.on('status', (status) => {
      const over = instance.experiment !== '' && [grpc.status.OK, grpc.status.NOT_FOUND].includes(status.code);
      if (over) return;
      if (status.code === grpc.status.OK || AGAIN.has(status.code)) {
        setTimeout(() => dial(instance), AGAIN_MS);
      } else {
        console.error(`the scheduler refused policy ${name}: ${status.details}`);
        process.exit(1);
      }
    });
  }

  dial(new Instance(Policy));
}

module.exports = { State, findToken, serve };
