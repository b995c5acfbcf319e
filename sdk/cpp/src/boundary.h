// The boundaries of one run, where training and agent meet: what is reported, saved, waited for, and how it ends.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "control.h"
#include "hopyard/hopyard.h"
#include "hopyard/v1/application.pb.h"
#include "outbox.h"

namespace hopyard::detail {

/// One thread trains, another one brings the agent's commands.
class Boundary {
  public:
    /// Take a run over; commands may come from now on. Without `resume` its positions begin at 0.
    Boundary(const v1::ApplicationStart& start, Outbox& outbox, bool resume);

    Position position();

    void decide(const v1::DecideRun& command);
    /// Amend the run and answer whether it was in time.
    void amend(const v1::AmendRun& command);

    /// Whether the present iteration takes longer than the run allows; `now` is monotonic.
    bool hung(double now);

    /// The state is loaded; `finished`: nothing is left to train.
    void started(bool finished);

    /// What to do now: train, restate, save or end; blocks while the run is to wait. With `train` the next iteration has begun.
    Action next();

    /// Tell of a position that was reached; `savable`: a snapshot of it can be taken.
    void report(Position position, const Metrics& metrics, double seconds, bool finished, bool savable);

    /// Tell where a run stands that has nothing to train.
    void restate(bool finished) { report(position(), {}, 0, finished, false); }

    /// A snapshot of the present position was taken.
    void saved(const v1::Snapshot& snapshot);

    /// Tell that the run ends.
    void end(const Action& action);
    /// Tell that it failed; `user`: by the fault of the user's code.
    void fail(const std::string& message, bool user);

  private:
    double iteration_timeout_;
    Outbox& outbox_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Control control_;
    std::optional<v1::Snapshot> snapshot_;
    double iteration_began_ = -1;  // monotonic seconds; negative: none is under way
};

}  // namespace hopyard::detail
