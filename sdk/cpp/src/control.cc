#include "control.h"

#include <algorithm>
#include <stdexcept>

namespace hopyard::detail {

Control::Control(const Plan& plan)
    : position_(plan.position),
      until_(plan.until),
      allowed_(plan.allowed),
      every_(plan.snapshot_every),
      points_(plan.snapshot_at.upper_bound(plan.position), plan.snapshot_at.end()),
      last_snapshot_(plan.position),
      committed_(plan.position),
      completes_(plan.completes) {}

Action Control::next() const {
    if (in_flight_) throw std::logic_error("next() inside of an iteration");
    if (!reported_) return {at_end() ? Step::restate : Step::train};
    if (save_point_due()) return {Step::save};
    if (stop_ == Stop::terminate) return {Step::end, Reason::terminated};
    if (stop_ == Stop::suspend) return end_saved(Reason::suspended);
    if (parked_) return completing_ ? end_saved(Reason::until) : Action{Step::wait};
    return {position_ >= allowed_ && position_ > released_ ? Step::wait : Step::train};
}

void Control::began() {
    in_flight_ = true;
    reported_ = false;
    committed_ = position_;
}

bool Control::reached(Position position, bool finished, bool savable) {
    if (in_flight_ && position <= position_) throw std::logic_error("an iteration that leads nowhere");
    in_flight_ = false;
    reported_ = true;
    position_ = committed_ = position;
    finished_ = finished;
    savable_ = savable;
    parked_ = at_end();
    park_decided_ = false;
    completing_ = completes_ && at_end();
    return parked_;
}

void Control::saved() {
    saved_at_ = last_snapshot_ = position_;
    points_.erase(points_.begin(), points_.upper_bound(position_));
}

void Control::decide(Command command, Position position, Position allowed) {
    allowed_ = std::max(allowed_, allowed);
    switch (command) {
        case Command::terminate:
            stop_ = Stop::terminate;
            break;
        case Command::suspend:
            if (stop_ == Stop::none) stop_ = Stop::suspend;
            break;
        case Command::park:
            park_decided_ = park_decided_ || (parked_ && position >= position_);
            break;
        case Command::proceed:
            proceed(position);
            break;
    }
}

Amended Control::amend(Position until, const std::vector<Position>& snapshot_at) {
    const Position passed = std::max(position_, committed_);
    const bool until_ok = until == 0 || until > passed || (until == position_ && parked_);
    // At a boundary the present position can still be saved.
    const bool points_ok = std::all_of(snapshot_at.begin(), snapshot_at.end(), [&](Position point) {
        return point > passed || (point == position_ && reported_);
    });
    const bool ahead = until > position_ || std::any_of(snapshot_at.begin(), snapshot_at.end(),
                                                        [&](Position point) { return point > position_; });
    if (!(until_ok && points_ok) || completing_ || (finished_ && ahead)) return {false, passed};
    if (until != 0) {
        until_ = until;
        completes_ = false;  // It is not the end that it was.
    }
    points_.insert(snapshot_at.begin(), snapshot_at.end());
    points_.erase(saved_at_);  // A snapshot of this position exists.
    if (parked_ && until > position_ && park_decided_) release();
    return {true, position_};
}

void Control::proceed(Position position) {
    released_ = std::max(released_, position);
    if (!parked_ || position < position_) return;
    park_decided_ = false;
    if (at_end()) {
        completing_ = true;
    } else {
        release();
    }
}

void Control::release() {
    parked_ = park_decided_ = false;
    released_ = std::max(released_, position_);
}

bool Control::save_point_due() const {
    if (!savable_ || saved_at_ == position_) return false;
    if (!points_.empty() && *points_.begin() <= position_) return true;
    // A periodic snapshot of a run that is being terminated serves nobody; a save point that was asked for may be forked.
    return stop_ != Stop::terminate && 0 < every_ && every_ <= position_ - last_snapshot_;
}

Action Control::end_saved(Reason reason) const {
    if (!savable_) return {Step::end, reason, false};
    return saved_at_ == position_ ? Action{Step::end, reason, true} : Action{Step::save};
}

}  // namespace hopyard::detail
