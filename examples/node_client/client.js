// A client in JavaScript: submits an experiment, watches it, and controls it and its jobs.
//
//   npm ci
//   node client.js --server ADDRESS submit experiment.yaml       # prints the id, then each change until the end
//   node client.js --server ADDRESS pause|resume|stop EXPERIMENT
//   node client.js --server ADDRESS suspend|terminate|hold|let-go EXPERIMENT JOB
//
// It sends the user token of the cluster with each call: see `userToken`.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const EXPERIMENT_ACTS = { pause: 'PauseExperiment', resume: 'ResumeExperiment', stop: 'StopExperiment' };
const JOB_ACTS = { suspend: 'SuspendJob', terminate: 'TerminateJob', hold: 'PauseJob', 'let-go': 'UnpauseJob' };
const ENDS = ['COMPLETED', 'STOPPED', 'FAILED'];

/**
 * The user token of a cluster: from the folder `secrets` next to the scheduler's socket, or in the folder above; else from the
 * variable HOPYARD_USER_TOKEN, or from the file that HOPYARD_USER_TOKEN_FILE names. `hopyard connection` shows which one it is.
 */
function userToken(server) {
  const files = [];
  if (server.startsWith('unix:')) {
    const folder = path.dirname(server.slice('unix:'.length));
    files.push(...[folder, path.dirname(folder)].map((place) => path.join(place, 'secrets', 'user.token')));
  }
  const { HOPYARD_USER_TOKEN: token, HOPYARD_USER_TOKEN_FILE: named } = process.env;
  const file = files.find((one) => fs.existsSync(one)) ?? (token ? undefined : named);
  if (file) return fs.readFileSync(file, 'utf8').trim();
  if (token) return token.trim();
  throw new Error(`there is no token for ${server}; set HOPYARD_USER_TOKEN_FILE to a copy of secrets/user.token of its data directory`);
}

function services(server, protos) {
  const definition = loader.loadSync(['hopyard/v1/experiment.proto', 'hopyard/v1/job_manager.proto'], {
    includeDirs: [protos],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  });
  const { ExperimentService, JobManagerService } = grpc.loadPackageDefinition(definition).hopyard.v1;
  const token = userToken(server);
  const authorize = (options, next) =>
    new grpc.InterceptingCall(next(options), {
      start(metadata, listener, begin) {
        metadata.set('authorization', `Bearer ${token}`);
        begin(metadata, listener);
      },
    });
  const open = (Service) => new Service(server, grpc.credentials.createInsecure(), { interceptors: [authorize] });
  return { experiments: open(ExperimentService), jobs: open(JobManagerService) };
}

/** One call, as a promise. An error's `details` say what to do. */
function call(client, method, request) {
  return new Promise((resolve, reject) => {
    const deadline = new Date(Date.now() + 30_000);
    client[method](request, { deadline }, (error, response) => (error ? reject(error) : resolve(response)));
  });
}

const state = (message) => message.state.replace(/^(EXPERIMENT|JOB)_STATE_/, '');

/** Prints each change until the experiment has ended; answers how. */
function watch(client, experiment) {
  return new Promise((resolve, reject) => {
    const stream = client.WatchExperiment({ experiment });
    let last = 'RUNNING';
    stream.on('data', (response) => {
      if (response.change === 'experiment') {
        last = state(response.experiment);
        console.log(`experiment ${last} ${response.experiment.reason}`.trim());
      } else if (response.change === 'job') {
        const { id, position, reason } = response.job;
        console.log(`job ${id} ${state(response.job)} at ${position} ${reason}`.trim());
      } else {
        const { job, report } = response.report;
        console.log(`job ${job} reported ${report.position}: ${JSON.stringify(report.metrics)}`);
      }
    });
    stream.on('error', reject);
    stream.on('end', () => resolve(last));
  });
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      server: { type: 'string', default: process.env.HOPYARD_SERVER },
      protos: { type: 'string', default: path.join(__dirname, '..', '..', 'protos') },
    },
  });
  const [act, name, job] = positionals;
  if (!values.server || !act || !name) {
    console.error('usage: node client.js --server ADDRESS submit FILE | watch|pause|resume|stop EXPERIMENT | ACT EXPERIMENT JOB');
    return 2;
  }
  const { experiments, jobs } = services(values.server, values.protos);
  if (act in EXPERIMENT_ACTS) {
    await call(experiments, EXPERIMENT_ACTS[act], { experiment: name });
  } else if (act in JOB_ACTS) {
    const response = await call(jobs, JOB_ACTS[act], { experiment: name, job });
    console.log(`job ${job} ${state(response.job)}`);
  } else {
    let experiment = name;
    if (act === 'submit') {
      const request = { spec: fs.readFileSync(name, 'utf8'), source: name, request_id: crypto.randomUUID() };
      const created = await call(experiments, 'CreateExperiment', request);
      experiment = created.experiment.id;
      console.log(`created ${experiment}`);
    }
    const end = await watch(experiments, experiment);
    if (!ENDS.includes(end)) throw new Error(`the watch ended while the experiment was ${end}`);
    return end === 'COMPLETED' ? 0 : 1;
  }
  return 0;
}

main().then(
  (code) => process.exit(code),
  (error) => {
    console.error(`error: ${error.details || error.message}`);
    process.exit(1);
  },
);
