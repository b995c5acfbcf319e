"""What the policy (or a person) wants: each command is checked against the core's own state, then carried out or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hopyard.policy.vocabulary import (
    ENDLESS,
    AmendRun,
    AnswerJob,
    AnswerReady,
    Ask,
    Command,
    CreateJob,
    Decision,
    DecisionKind,
    ForkJob,
    JobCreated,
    JobState,
    LabelJob,
    Predict,
    ReleaseMachine,
    ReserveMachine,
    RunEndReason,
    RunMode,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)
from hopyard_scheduler.core import earlier, losses, predicting
from hopyard_scheduler.core.channels import Channel
from hopyard_scheduler.core.curve import same_metrics
from hopyard_scheduler.core.data import Place
from hopyard_scheduler.core.effects import Amend, Decide, Kill, Start
from hopyard_scheduler.core.events import Requested
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.member import Member, Phase
from hopyard_scheduler.core.model import POLICY, Earlier, GeneratorCall, HeldMachine, Job, Rank, Run
from hopyard_scheduler.core.snapshots import Entry

CREATE = "create/"
KILL = "core/kill/"


class RefusedError(Exception):
    """A command that the core does not carry out; says what stands against it."""


class NotYetError(RefusedError):
    """A command that may be carried out later; the policy is asked again then, not at once."""


def carry_out(x: Experiment, command: Command, at: float) -> None:
    """Carries out one command, wholly or not at all.

    Raises:
        RefusedError: What stands against it.
    """
    match command:
        case StartJob():
            _start(x, command)
        case AmendRun():
            _amend(x, command)
        case SuspendJob():
            end_run(x, _running(x, command.job), RunEndReason.SUSPENDED)
        case TerminateJob():
            terminate(x, _free(find_job(x, command.job)), "terminated")
        case CreateJob():
            _create(x, command, at)
        case ForkJob():
            _fork(x, command, at)
        case AnswerJob():
            _answer(x, command)
        case LabelJob():
            _label(x, command)
        case ReserveMachine() | ReleaseMachine():
            _reserve(x, command.machine, isinstance(command, ReserveMachine))
        case Predict():
            _predict(x, command)
        case Ask():
            x.ask(POLICY + command.ticket, command.kind, command.payload)
        case WakeAt():
            x.set_timer(POLICY + command.ticket, command.at)


# ------------------------------------------------------------------------------------------------------------------ checks


def find_job(x: Experiment, job: str) -> Job:
    """The job that a command names.

    Raises:
        RefusedError: There is none.
    """
    found = x.jobs.get(job)
    if found is None:
        raise RefusedError(f"there is no job {job!r}")
    return found


def _free(job: Job) -> Job:
    """A job that no person has paused."""
    if job.held:
        raise NotYetError(f"job {job.id!r} is paused by a person")
    return job


def _idle(x: Experiment, job: str) -> Job:
    found = _free(find_job(x, job))
    if not found.state.idle:
        raise RefusedError(f"job {job!r} is {found.state.value}, not PENDING or SUSPENDED")
    if losses.held(x, found):
        raise NotYetError(f"job {job!r} waits for a moment after {found.setbacks} losses or failures")
    return found


def _running(x: Experiment, job: str) -> Run:
    run = find_job(x, job).run
    if run is None or run.ended is not None:
        raise RefusedError(f"job {job!r} has no run")
    return run


def _new(x: Experiment, job: str) -> None:
    if job != str(x.ordinals + 1):
        raise RefusedError(f"a new job must be {x.ordinals + 1!r}, found {job!r}")


def find_member(x: Experiment, name: str) -> Member:
    """The experiment of the group that a command names.

    Raises:
        RefusedError: There is none, or it is over or ending.
    """
    member = x.members.get(name)
    if member is None:
        raise RefusedError(f"there is no experiment {name!r} in this group; there are: {', '.join(x.members)}")
    if member.phase is Phase.ENDING or member.phase.over:
        raise RefusedError("the experiment is ending" if member.phase is Phase.ENDING else "the experiment is over")
    return member


def _maker(x: Experiment, name: str) -> Member:
    """The experiment that a new job is made for: the named one, else the one that is furthest behind its weight."""
    if name:
        member = find_member(x, name)
    else:
        able = [m for m in x.running if m.jobs_left] or x.running or [x.founder]
        member = find_member(x, min(able, key=lambda m: m.generated / m.settings.weight).id)
    if member.jobs_left == 0:
        raise RefusedError(
            "the generator is exhausted"
            if member.exhausted
            else f"the experiment has all its {member.settings.jobs} jobs"
        )
    return member


def _snapshot(x: Experiment, source: tuple[str, int]) -> Entry:
    entry = x.snapshots.get(*source)
    if entry is None or not entry.available:
        raise RefusedError(f"job {source[0]!r} has no snapshot at position {source[1]}")
    return entry


# ------------------------------------------------------------------------------------------------------------------- jobs


def _create(x: Experiment, command: CreateJob, at: float) -> None:
    _new(x, command.job)
    if command.limit is not None:
        _create_limited(x, command, command.limit, at)
        return
    member = _maker(x, command.experiment)
    job = _add(x, command.job, member, at)
    member.generated += 1
    if command.hyperparameters is None:
        job.generated = True
        x.changed(job)
        told = len(member.generator_calls)
        member.generator_calls.append(GeneratorCall("create", job.id, answered=False))
        x.ask(CREATE + job.id, "create_job", {"job": job.id, "after": told}, member.id)
    else:
        configured(x, job, dict(command.hyperparameters))


def _create_limited(x: Experiment, command: CreateJob, limit: int, at: float) -> None:
    """A job with an end of its own is beside the experiment's: it is none of those that it may have."""
    if command.hyperparameters is None:
        raise RefusedError("a job with a limit of its own needs hyperparameters")
    if not 1 <= limit < ENDLESS:
        raise RefusedError(f"limit must be in 1..{ENDLESS - 1}, found {limit}")
    job = _add(x, command.job, find_member(x, command.experiment or x.founder.id), at)
    job.limit = limit
    configured(x, job, dict(command.hyperparameters))


def request(x: Experiment, event: Requested) -> Job:
    """Makes the job that a client asks for.

    Raises:
        RefusedError: The experiment is ending.
    """
    job = _add(x, str(x.ordinals + 1), find_member(x, event.member or x.id), event.at)
    job.limit = event.position
    job.hyperparameters = dict(event.hyperparameters)
    x.move(job, JobState.PENDING, "a client asked for it")
    return job


def _add(x: Experiment, name: str, member: Member, at: float) -> Job:
    x.ordinals += 1
    job = x.jobs[name] = x.open[name] = Job(name, x.ordinals, at, member)
    job.story.append(JobState.CREATING.value)
    x.count(job, 1)
    return job


def configured(x: Experiment, job: Job, hyperparameters: dict[str, object]) -> None:
    """A job has its configuration and may run."""
    job.hyperparameters = hyperparameters
    x.move(job, JobState.PENDING, "waits for its first machine")
    x.call(JobCreated(job.id))


def _fork(x: Experiment, command: ForkJob, at: float) -> None:
    _new(x, command.job)
    member = find_member(x, command.experiment or find_job(x, command.parent).member.id)
    source = (command.parent, command.position)
    _snapshot(x, source)
    if command.position >= member.settings.max_position:
        raise RefusedError(
            f"a job forked at {command.position} has nothing to train: {member.settings.max_position} is the end"
        )
    job = _add(x, command.job, member, at)
    x.set_origin(job, source)
    job.fork_pin = source
    job.forked = True
    job.position = job.high_water = command.position
    x.snapshots.pin(source, job.fork_holder)
    configured(x, job, dict(command.hyperparameters))


def _answer(x: Experiment, command: AnswerJob) -> None:
    job = _free(find_job(x, command.job))
    source = x.earlier.get(command.source) or find_job(x, command.source)
    if job.state.ended or job.run is not None:
        raise RefusedError(f"job {job.id!r} is {job.state.value}; only a waiting job can be answered")
    if source is job and _complete_with_its_own(x, job, command):
        return
    if source is job:
        raise RefusedError(f"job {job.id!r} cannot be answered from itself")
    if command.position > job.max_position:
        raise RefusedError(f"job {job.id!r} ends at {job.max_position}, it cannot be answered at {command.position}")
    if source.high_water < command.position:
        raise RefusedError(f"job {command.source!r} has reported up to {source.high_water}, not {command.position}")
    if isinstance(source, Earlier):
        _answer_from_earlier(x, job, source, command)
        return
    if not command.completes:
        if job.high_water < command.position:
            x.set_origin(job, (source.id, command.position))
            job.high_water = command.position
            _rate(x, job)
            x.changed(job)
        return
    x.unpin_fork(job)
    x.set_origin(job, (source.id, command.position))
    job.forked = False
    job.position = job.high_water = command.position
    _rate(x, job)
    x.move(job, JobState.COMPLETED, f"answered from job {source.id} at {command.position}")


def _complete_with_its_own(x: Experiment, job: Job, command: AnswerJob) -> bool:
    """Completes a job that has trained to its end and waited for its policy to evaluate it; whether it is one."""
    top = job.max_position
    waited = job.terms.evaluates and command.completes and command.position == job.position >= top
    if waited:
        x.unpin_fork(job)
        x.move(job, JobState.COMPLETED, "trained to its end")
    return waited


def _answer_from_earlier(x: Experiment, job: Job, source: Earlier, command: AnswerJob) -> None:
    earlier.adopt(x, job, source, command.position)
    if not command.completes:
        x.changed(job)
        return
    x.unpin_fork(job)
    job.position = job.high_water = command.position
    x.move(job, JobState.COMPLETED, f"answered from {command.source} at {command.position}, which was trained earlier")


def _rate(x: Experiment, job: Job) -> None:
    """A job's best is the last value that it was answered with."""
    point = next((p for p in reversed(x.curve(job)) if x.settings.metric in p.metrics), None)
    if point is not None:
        job.best = (point.metrics[x.settings.metric], point.position)


def terminate(x: Experiment, job: Job, why: str) -> None:
    """Ends a job: a running one at its next boundary, an idle one at once, an ended one stays as it is."""
    if job.state.ended:
        return
    if job.run is not None and job.run.ended is None:
        end_run(x, job.run, RunEndReason.TERMINATED)
    elif job.run is None:
        x.move(job, JobState.TERMINATED, why)


def hold(x: Experiment, name: str, held: bool, asks_anew: bool) -> None:
    """A person pauses a job, or lets it go on; each twice is as good as once.

    Raises:
        RefusedError: There is no such job, or it has ended or its experiment does.
    """
    job = find_job(x, name)
    find_member(x, job.member.id)
    if job.state.ended:
        raise RefusedError(f"job {name!r} is {job.state.value}")
    without_run = job.state is JobState.HELD or (held and job.state.idle)
    if job.held is held:
        return
    job.held = held
    if job.state is JobState.HELD:
        own = x.snapshots.newest(job.id) is not None
        x.move(job, JobState.SUSPENDED if own else JobState.PENDING, "resumed by a person")
        x.outdated = x.demand is not None
    elif held and job.state.idle:
        x.move(job, JobState.HELD, "paused by a person")
    elif held and job.run is not None and job.run.ended is None:
        end_run(x, job.run, RunEndReason.SUSPENDED)
    x.changed(job)
    if asks_anew and without_run:
        ask_anew(x)


def ask_anew(x: Experiment) -> None:
    """A person changed what becomes of a job without a run: others may have waited for it, and no end of a run tells of it."""
    x.wake()
    x.outdated = x.demand is not None


def _label(x: Experiment, command: LabelJob) -> None:
    job = find_job(x, command.job)
    if math.isnan(command.priority):
        raise RefusedError("a priority is a number, found NaN")
    job.priority = command.priority
    x.idle.label(job.id, job.priority)
    x.changed(job)


def _predict(x: Experiment, command: Predict) -> None:
    job = find_job(x, command.job)
    if found := predicting.obstacle(job, command.parameters):
        raise RefusedError(found)
    x.ask(POLICY + command.ticket, predicting.PREDICT, predicting.question(x, job, command.parameters))
    job.predictions[POLICY + command.ticket] = None


def _reserve(x: Experiment, machine: str, reserved: bool) -> None:
    held = x.machines.get(machine)
    if held is None or not held.idle:
        raise RefusedError(f"machine {machine!r} is not an idle machine of this experiment")
    x.reserve(held, reserved)
    if not reserved:
        x.wake()


# ------------------------------------------------------------------------------------------------------------------- runs


def _start(x: Experiment, command: StartJob) -> None:
    job = _idle(x, command.job)
    machines = _gang(x, job, command)
    source = command.from_snapshot or x.source_of(job)
    entry = _snapshot(x, source) if source is not None else None
    start = source[1] if source is not None else 0
    training = command.mode is RunMode.TRAIN
    if not training and entry is None:
        raise RefusedError(f"job {job.id!r} has no snapshot to evaluate")
    places = _places(x, command, machines)
    if command.parts and (training or set(command.inputs) != set(command.machines)):
        raise RefusedError("parts are those of an evaluation, and its machine needs an input")
    until = (job.max_position if command.until is None else command.until) if training else start
    if training and not start < until <= job.max_position:
        raise RefusedError(f"until must be in {start + 1}..{job.max_position} for job {job.id!r}, found {until}")

    job.attempt += 1
    ranks = []
    for index, machine in enumerate(machines):
        channel = job.channels[job.attempt, index] = Channel(machine.node)
        ranks.append(Rank(machine.id, machine.node, channel))
    # What an earlier attempt reported is only repeated, so nothing needs to be decided before the high-water mark.
    allowed = max(command.allowed or 0, min(job.high_water, until), start)
    run = Run(
        job.id,
        job.attempt,
        command.mode,
        ranks,
        until,
        allowed,
        start,
        source,
        dict(command.inputs),
        command.preemptible,
        completes=training and not job.terms.ends_jobs and until == job.max_position,
        parts=command.parts,
    )
    run.position = start
    job.run = x.live[job.id] = run
    if training:
        job.position = start
        if source is not None and source[0] != job.id and job.origin != source and not _continues(x, job, source):
            x.set_origin(job, source)
            job.high_water = max(job.high_water, start)
    if source is not None:
        x.snapshots.pin(source, run.holder)
    for machine in machines:
        x.occupy(machine, run)
    x.move(job, JobState.STARTING, f"starting on {', '.join(run.machines)}")
    saves = tuple(s for s in command.snapshot_at if s > start)
    job.asked.update(saves)
    _send_start(x, job, run, entry, saves, places)


def _continues(x: Experiment, job: Job, source: tuple[str, int]) -> bool:
    """Whether a job has the results up to another's snapshot already, as that one has: its curve goes on beyond and stays as it is."""
    if job.high_water < source[1]:
        return False
    mine, theirs = (
        [point for point in x.curve(each) if point.position <= source[1]] for each in (job, x.jobs[source[0]])
    )
    return [p.position for p in mine] == [p.position for p in theirs] and all(
        same_metrics(one.metrics, other.metrics) for one, other in zip(mine, theirs, strict=True)
    )


def _gang(x: Experiment, job: Job, command: StartJob) -> list[HeldMachine]:
    """The machines of a start, all or none."""
    if not job.member.running:
        raise RefusedError(f"the experiment is {job.member.phase.value}")
    if not command.machines or len(set(command.machines)) != len(command.machines):
        raise RefusedError(f"a run needs one or more different machines, found {list(command.machines)}")
    unusable = [m for m in command.machines if m not in x.machines or not x.machines[m].idle]
    if unusable:
        raise RefusedError(f"not idle machines of this experiment: {', '.join(unusable)}")
    if x.concurrency is not None and len(x.live) >= x.concurrency:
        raise NotYetError(f"{len(x.live)} jobs train, and {x.concurrency} may at a time (resources.concurrency)")
    if x.placed + len(command.machines) > x.share:
        raise RefusedError(f"the experiment's share is {x.share} machines and {x.placed} are busy")
    return [x.machines[m] for m in command.machines]


def _places(x: Experiment, command: StartJob, machines: list[HeldMachine]) -> dict[str, Place]:
    """Where each machine's partition is; without partitioned data inputs are paths."""
    if x.data is None:
        return {}
    if strange := [name for name in command.inputs if name not in command.machines]:
        raise RefusedError(f"inputs for machines that the run is not on: {', '.join(strange)}")
    found: dict[str, Place] = {}
    for machine in machines:
        if machine.id in command.inputs:
            place = x.data.place(command.inputs[machine.id], machine.node)
            if isinstance(place, str):
                raise RefusedError(place)
            found[machine.id] = place
    return found


def _send_start(
    x: Experiment,
    job: Job,
    run: Run,
    entry: Entry | None,
    snapshot_at: tuple[int, ...],
    places: Mapping[str, Place],
) -> None:
    for index, rank in enumerate(run.ranks):
        start = Start(
            machine=rank.machine,
            hyperparameters=job.hyperparameters or {},
            mode=run.mode,
            until=run.until,
            allowed=run.allowed,
            snapshot_at=snapshot_at if index == 0 else (),
            snapshot_every=job.terms.snapshot_every if index == 0 and run.mode is RunMode.TRAIN else 0,
            snapshot=entry.info if entry is not None else None,
            snapshot_nodes=tuple(sorted(entry.nodes)) if entry is not None else (),
            input=run.inputs.get(rank.machine, ""),
            rank_nodes=tuple(r.node for r in run.ranks),
            completes=run.completes,
            place=places.get(rank.machine),
            ships_by_order=job.terms.ship_every != 1,
        )
        x.send(run, index, start)


def _amend(x: Experiment, command: AmendRun) -> None:
    run, job = _running(x, command.job), x.jobs[command.job]
    if run.ending is not None:
        raise RefusedError(f"the run of job {command.job!r} is ending")
    if run.mode is not RunMode.TRAIN:
        raise RefusedError(f"the run of job {command.job!r} evaluates")
    if command.until is not None and command.until > job.max_position:
        raise RefusedError(f"until must be at most {job.max_position}, found {command.until}")
    wanted = [p for p in (command.until, *command.snapshot_at) if p is not None]
    late = any(p < run.position or (p == run.position and not run.parked) for p in wanted)
    if late:  # Known to be too late already: the run need not be asked.
        x.call(AnswerReady(command.ticket, {"accepted": False, "position": run.position}))
        return
    run.amends[command.ticket] = (command.until, command.snapshot_at)
    x.send(run, 0, Amend(command.ticket, command.until, command.snapshot_at))  # The other ranks go where rank 0 leads.


_ENDINGS = {
    RunEndReason.SUSPENDED: DecisionKind.SUSPEND,
    RunEndReason.PREEMPTED: DecisionKind.SUSPEND,
    RunEndReason.TERMINATED: DecisionKind.TERMINATE,
}


def end_run(x: Experiment, run: Run, reason: RunEndReason) -> None:
    """Ends a run at its next boundary. A run that is ending already ends as it was told, unless it is now terminated."""
    if run.ending is RunEndReason.TERMINATED or (run.ending is not None and reason is not RunEndReason.TERMINATED):
        return
    run.ending = reason
    job = x.jobs[run.job]
    if job.state is not JobState.SUSPENDING:
        why = {
            RunEndReason.PREEMPTED: "preempted: another experiment's share",
            RunEndReason.TERMINATED: "terminated, leaving at its next boundary",
        }.get(reason, "saving, leaving at its next boundary")
        x.move(job, JobState.SUSPENDING, why)
    x.send(run, 0, Decide(_ENDINGS[reason], run.position))
    if reason is RunEndReason.TERMINATED:
        x.set_timer(kill_timer(run), x.now + x.settings.kill_after)


def kill_timer(run: Run) -> str:
    """The timer after which a terminated run that reaches no boundary, and a rank that stays behind, is killed."""
    return f"{KILL}{run.job}.{run.attempt}"


def kill(x: Experiment, name: str) -> None:
    """A terminated run has reached no boundary in its time, or a rank has not followed: they are ended as they are."""
    job = x.jobs.get(name.rpartition(".")[0])
    run = job.run if job is not None else None
    if run is not None and kill_timer(run) == KILL + name:
        for index, rank in enumerate(run.ranks):
            if not rank.gone:
                x.send(run, index, Kill("it was to leave and has not"))


def decide(x: Experiment, run: Run, position: int, at_until: bool, decision: Decision) -> None:
    """Carries out the decision on a run that finished an iteration, after the commands of the same answer.

    Raises:
        RefusedError: PARK anywhere else than at `until`.
    """
    if x.live.get(run.job) is not run or run.ending is not None or run.ended is not None:
        return
    match decision.kind:
        case DecisionKind.SUSPEND:
            end_run(x, run, RunEndReason.SUSPENDED)
        case DecisionKind.TERMINATE:
            end_run(x, run, RunEndReason.TERMINATED)
        case DecisionKind.PARK:
            if not at_until:
                raise RefusedError(
                    f"PARK is legal at a run's until only; job {run.job!r} is at {position} of {run.until}"
                )
            x.send(run, 0, Decide(DecisionKind.PARK, position))
        case DecisionKind.CONTINUE:
            _proceed(x, run, position, at_until, decision.up_to or 0)


def complete(x: Experiment, run: Run, position: int) -> None:
    """A run that has reached its `until` saves and ends. One that does so by itself is told all the same."""
    run.ending = RunEndReason.UNTIL
    job = x.jobs[run.job]
    over = run.finished or position >= job.max_position
    x.move(job, JobState.SUSPENDING, f"{'has no more to train' if over else f'reached position {position}'}, saving")
    x.send(run, 0, Decide(DecisionKind.CONTINUE, position))


def _proceed(x: Experiment, run: Run, position: int, at_until: bool, up_to: int) -> None:
    waits = position >= run.allowed
    allowed = max(run.allowed, up_to)
    if at_until and run.coming_until <= position:
        complete(x, run, position)
    elif at_until or waits or allowed > run.allowed:
        run.allowed = allowed
        x.send(run, 0, Decide(DecisionKind.CONTINUE, position, allowed))
