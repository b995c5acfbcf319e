// The bandit policy in JavaScript: it makes the same decisions as the built-in one (policies/hopyard_policies/bandit.py).
//
//   npm ci
//   node bandit.js --server ADDRESS --name bandit-js      # then, in an experiment file,  policy: remote:bandit-js
'use strict';

const { parseArgs } = require('node:util');
const { serve } = require('./hopyard.js');

const AT_ONCE = 512;

class Bandit {
  constructor({ evaluation_boundary = 10, epsilon = 0.5, ahead = 2, ...others }) {
    if (!Number.isInteger(evaluation_boundary) || evaluation_boundary < 1) {
      throw new Error(`evaluation_boundary is ${evaluation_boundary}; it must be a whole number of at least 1`);
    }
    if (typeof epsilon !== 'number' || !(epsilon >= 0 && epsilon < Infinity)) {
      throw new Error(`epsilon is ${epsilon}; it must be a finite number of at least 0`);
    }
    if (!Number.isInteger(ahead) || ahead < 0 || ahead > 10000) {
      throw new Error(`ahead is ${ahead}; it must be a whole number in 0..10000`);
    }
    const unknown = Object.keys(others);
    if (unknown.length > 0) {
      throw new Error(`has no parameter ${unknown.join(', ')}; it takes: ahead, epsilon, evaluation_boundary`);
    }
    Object.assign(this, { every: evaluation_boundary, epsilon, ahead });
    this.passed = new Map(); // boundaries at which a job was judged
  }

  // Runs wait at boundaries, and the policy decides only there.
  review() {
    return { every_iteration: false, ends_jobs: false, version: '2' };
  }

  answer(state, call) {
    const waiting = state.queued() + state.count('CREATING');
    const busy = [...state.slots.values()].filter((slot) => !slot.idle).length;
    const answer = { commands: [], demand: busy + waiting + state.jobsLeft() };
    if (call.call === 'allocate_jobs') this.allocate(state, answer.commands);
    if (call.call === 'iteration_finish') Object.assign(answer, this.judge(state, call.iteration_finish));
    return answer;
  }

  allocate(state, commands) {
    const slots = state.idleSlots();
    const creating = state.count('CREATING');
    let waiting = state.queued();
    let jobs = state.idleJobs();
    const start = (job) => {
      const slot = slots.shift().id;
      const { id, max_position: until } = job;
      commands.push({ start_job: { job: id, slots: [slot], until, allowed: this.undisturbed(job) } });
    };
    while (slots.length > 0 && jobs.length > 0 && jobs[0].position < jobs[0].max_position) {
      start(jobs.shift());
      waiting -= 1;
    }
    if (slots.length > 0 && jobs.length > 0) {
      jobs = jobs.filter((job) => job.position < job.max_position);
      while (slots.length > 0 && jobs.length > 0) start(jobs.shift());
      waiting = jobs.length;
    }
    const wanted = Math.min(state.jobsLeft(), slots.length + this.ahead - creating - waiting, AT_ONCE - creating);
    for (let made = 1; made <= wanted; made += 1) commands.push({ create_job: { job: String(state.made + made) } });
  }

  judge(state, event) {
    const job = state.jobs.get(event.job);
    const { report } = event;
    // A run that is ending ignores decisions, so its boundary is not counted.
    if (report.at_until || report.finished || job.state === 'JOB_STATE_SUSPENDING') {
      return { decision: 'DECISION_CONTINUE' };
    }
    const boundaries = Math.floor(report.position / this.every);
    const ratings = state.ratings(job.id);
    if (ratings.length > 0 && boundaries > (this.passed.get(job.id) ?? 0)) {
      this.passed.set(job.id, boundaries);
      const own = ratings.reduce((a, b) => Math.max(a, b));
      if (!this.nearTheBest(state, own)) return { decision: 'DECISION_TERMINATE' };
    }
    return { decision: 'DECISION_CONTINUE', up_to: this.undisturbed(job) };
  }

  undisturbed(job) {
    return Math.min(((this.passed.get(job.id) ?? 0) + 1) * this.every, job.max_position);
  }

  /** Whether the best rated value of a job is near enough to that of the experiment. */
  nearTheBest(state, own) {
    if (state.incumbent === null) return true;
    const best = state.rated(state.incumbent.value);
    return own >= best || best - own < this.epsilon * Math.min(Math.abs(best), Math.abs(own));
  }
}

if (require.main === module) {
  const { values } = parseArgs({
    options: {
      server: { type: 'string', default: process.env.HOPYARD_SERVER },
      name: { type: 'string', default: process.env.HOPYARD_POLICY || 'bandit-js' },
      protos: { type: 'string' },
    },
  });
  if (!values.server) {
    console.error('bandit.js: --server ADDRESS says where the scheduler listens');
    process.exit(2);
  }
  serve({ Policy: Bandit, ...values });
}

module.exports = { Bandit };
