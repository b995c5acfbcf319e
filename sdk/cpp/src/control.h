// What a run does next: the semantic of positions, decisions and amendments, without I/O.
//
// A run stands either inside an iteration or at a boundary: the point right after a report. Control is told what happened (an
// iteration ended, a snapshot was taken, a decision or an amendment came) and says at each boundary what to do:
//
//     start --> train --> [report] --> save? --> wait? --> train ...
//                                        |         '----> end
//                                        '--------------> end
//
// - Below `allowed` it never waits. At `allowed` or beyond it waits for a decision on the reported position.
// - At `until` or beyond (or when the trainer finished) it is parked: it waits whatever `allowed` says. CONTINUE ends it there,
//   unless `until` was moved meanwhile; PARK keeps it, and a later move of `until` then releases it by itself.
// - SUSPEND and TERMINATE hold from the next boundary on, whatever position they name, and are never taken back.
// - Save points are served right after their report, before anything waits. A save point or an `until` that falls inside an
//   iteration is served at the first boundary behind it.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace hopyard::detail {

using Position = std::int64_t;

struct Plan {
    Position position = 0;
    Position until = 0;    // 0: no end of its own
    Position allowed = 0;  // reports below it need no decision
    std::set<Position> snapshot_at;
    Position snapshot_every = 0;  // 0: never
    bool completes = false;       // ends at `until`, saved, without a decision; but not at an `until` that was moved
};

enum class Step { train, restate, save, wait, end };
enum class Reason { until, suspended, terminated };
enum class Command { proceed, suspend, terminate, park };

struct Action {
    Step step;
    Reason reason = Reason::until;  // of `end`
    bool snapshot = false;          // of `end`: whether the one that was taken here is the run's last state

    bool operator==(const Action& other) const {
        return step == other.step && reason == other.reason && snapshot == other.snapshot;
    }
};

struct Amended {
    bool accepted;
    Position position;  // what lies at or before it is passed
};

/// The control of one run; not thread-safe.
class Control {
  public:
    explicit Control(const Plan& plan);

    Position position() const { return position_; }

    void started(bool finished) { finished_ = finished; }
    /// What to do at this boundary; asked again after each `saved`, decision or amendment.
    Action next() const;
    void began();
    /// An iteration ended, or a restatement is due, at `position`; returns the report's `at_until`. Without `savable` no snapshot
    /// can be taken at this boundary.
    bool reached(Position position, bool finished, bool savable);
    void saved();
    void decide(Command command, Position position, Position allowed);
    Amended amend(Position until, const std::vector<Position>& snapshot_at);

  private:
    enum class Stop { none, suspend, terminate };

    void proceed(Position position);
    void release();
    bool at_end() const { return finished_ || (0 < until_ && until_ <= position_); }
    bool save_point_due() const;
    Action end_saved(Reason reason) const;

    Position position_, until_, allowed_, every_;
    std::set<Position> points_;
    Position last_snapshot_;
    Position saved_at_ = -1;
    Position released_ = -1;
    Position committed_;
    bool in_flight_ = false;
    bool reported_ = false;
    bool finished_ = false;
    bool savable_ = true;
    bool parked_ = false;
    bool park_decided_ = false;
    bool completing_ = false;
    bool completes_;
    Stop stop_ = Stop::none;
};

}  // namespace hopyard::detail
