#include "boundary.h"

#include <chrono>
#include <utility>

#include "lease.h"
#include "metrics.h"

namespace hopyard::detail {
namespace {

constexpr std::size_t longest_message = 8000;

Plan plan(const v1::StartRun& start, bool resume) {
    Plan made;
    made.position = resume && start.has_snapshot() ? start.snapshot().position() : 0;
    made.until = start.until();
    made.allowed = start.allowed();
    made.snapshot_at = {start.snapshot_at().begin(), start.snapshot_at().end()};
    made.snapshot_every = start.snapshot_every();
    made.completes = start.completes();
    return made;
}

v1::RunEndReason wire(Reason reason) {
    switch (reason) {
        case Reason::suspended:
            return v1::RUN_END_REASON_SUSPENDED;
        case Reason::terminated:
            return v1::RUN_END_REASON_TERMINATED;
        case Reason::until:
            break;
    }
    return v1::RUN_END_REASON_UNTIL;
}

}  // namespace

Boundary::Boundary(const v1::ApplicationStart& start, Outbox& outbox, bool resume)
    : iteration_timeout_(start.start().iteration_timeout()),
      outbox_(outbox),
      control_(plan(start.start(), resume)) {}

Position Boundary::position() {
    const std::lock_guard lock(mutex_);
    return control_.position();
}

void Boundary::decide(const v1::DecideRun& command) {
    const std::lock_guard lock(mutex_);
    switch (command.decision()) {
        case v1::DECISION_CONTINUE:
            control_.decide(Command::proceed, command.position(), command.allowed());
            break;
        case v1::DECISION_SUSPEND:
            control_.decide(Command::suspend, command.position(), command.allowed());
            break;
        case v1::DECISION_TERMINATE:
            control_.decide(Command::terminate, command.position(), command.allowed());
            break;
        case v1::DECISION_PARK:
            control_.decide(Command::park, command.position(), command.allowed());
            break;
        default:
            return;  // A word of a newer agent.
    }
    changed_.notify_all();
}

void Boundary::amend(const v1::AmendRun& command) {
    const std::lock_guard lock(mutex_);
    const Amended amended = control_.amend(command.until(), {command.snapshot_at().begin(), command.snapshot_at().end()});
    v1::AttachRequest answer;
    answer.mutable_amended()->set_ticket(command.ticket());
    answer.mutable_amended()->set_accepted(amended.accepted);
    answer.mutable_amended()->set_position(amended.position);
    // Under the lock, so that the answer keeps its place among the reports.
    outbox_.send(std::move(answer));
    changed_.notify_all();
}

bool Boundary::hung(double now) {
    const std::lock_guard lock(mutex_);
    return iteration_began_ >= 0 && 0 < iteration_timeout_ && iteration_timeout_ < now - iteration_began_;
}

void Boundary::started(bool finished) {
    const std::lock_guard lock(mutex_);
    control_.started(finished);
    v1::AttachRequest said;
    said.mutable_started()->set_position(control_.position());
    outbox_.send(std::move(said));
}

Action Boundary::next() {
    std::unique_lock lock(mutex_);
    Action action = control_.next();
    while (action.step == Step::wait) {
        changed_.wait(lock);
        action = control_.next();
    }
    if (action.step == Step::train) {
        control_.began();
        iteration_began_ = monotonic_seconds();
    }
    return action;
}

void Boundary::report(Position position, const Metrics& metrics, double seconds, bool finished, bool savable) {
    v1::Report report;
    report.set_position(position);
    for (const auto& [name, value] : metrics) (*report.mutable_metrics())[name] = value;
    report.set_seconds(seconds);
    report.set_at(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
    report.set_finished(finished);
    {
        const std::lock_guard lock(mutex_);
        iteration_began_ = -1;
    }
    outbox_.wait_for_room();
    const std::lock_guard lock(mutex_);
    report.set_at_until(control_.reached(position, finished, savable));
    outbox_.send(std::move(report), control_.next().step == Step::train);
}

void Boundary::saved(const v1::Snapshot& snapshot) {
    const std::lock_guard lock(mutex_);
    snapshot_ = snapshot;
    control_.saved();
    v1::AttachRequest said;
    *said.mutable_snapshot_taken()->mutable_snapshot() = snapshot;
    outbox_.send(std::move(said));
}

void Boundary::end(const Action& action) {
    const std::lock_guard lock(mutex_);
    v1::AttachRequest said;
    said.mutable_ended()->set_reason(wire(action.reason));
    said.mutable_ended()->set_position(control_.position());
    if (action.snapshot) *said.mutable_ended()->mutable_snapshot() = snapshot_.value();
    outbox_.send(std::move(said));
}

void Boundary::fail(const std::string& message, bool user) {
    const std::lock_guard lock(mutex_);
    iteration_began_ = -1;
    v1::AttachRequest said;
    v1::RunEnded& ended = *said.mutable_ended();
    ended.set_reason(user ? v1::RUN_END_REASON_FAILED : v1::RUN_END_REASON_LOST);
    ended.set_position(control_.position());
    ended.set_failure(user ? v1::FAILURE_CLASS_USER_CODE : v1::FAILURE_CLASS_INFRASTRUCTURE);
    ended.set_message(sendable(message, longest_message));
    outbox_.send(std::move(said));
}

}  // namespace hopyard::detail
