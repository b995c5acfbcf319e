// What a training program in C++ says to its node agent, in one of two ways.
//
// A trainer: a class whose state can be saved and loaded.
//
//     class Digits : public hopyard::Trainer { ... };
//     int main(int argc, char** argv) { return hopyard::run<Digits>(argc, argv); }
//
// A script: a program with a loop of its own.
//
//     while (hopyard::go_on()) {
//         ...
//         hopyard::report({{"accuracy", 0.93}});
//     }
//
// Either is the `command` of an experiment file, and runs without a cluster too: it then prints what it reports.
// Everything here may be called from one thread at a time, in one process of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hopyard/values.h"

namespace hopyard {

/// Metrics by name: 1 to 256 printable characters, at most 1000 of them. NaN and infinities are legal and count as worst.
using Metrics = std::map<std::string, double>;

/// The library was called as it must not be: a position behind the last one, a checkpoint that is not there, another process.
class UsageError : public Error {
  public:
    using Error::Error;
};

/// What becomes of the run at a boundary.
enum class Decision {
    go_on,       ///< Train the next iteration.
    reached,     ///< It has reached what it was to reach: leave.
    suspended,   ///< It goes on later, from its checkpoint if it has one: leave.
    terminated,  ///< It does not go on: leave.
    failed,      ///< Its checkpoint could not be saved or loaded; that was told: leave.
};

// --- Trainers ---

/// Where a trainer runs.
struct Context {
    Hyperparameters hyperparameters;
    /// The same for equal configurations of an experiment, whatever the job.
    std::int64_t seed = 0;
    /// How far the job has trained before this run, in units: that of the state which `load` gets; 0: from scratch.
    std::int64_t position = 0;
    /// Whose run it is; both are empty without a cluster.
    std::string experiment;
    std::string job;
    /// A folder for files of the run, which is there and is gone after it.
    std::filesystem::path scratch;
    /// What the program was called with, without its name and the library's own options.
    std::vector<std::string> arguments;
};

/// The training of one configuration, cut into iterations. One object is made for each run.
///
/// What these methods throw ends the job as FAILED with the exception's message, and counts towards `max_failures`; an error of
/// the disk (std::system_error with ENOSPC and the like) ends the run only, and the job goes on elsewhere.
class Trainer {
  public:
    virtual ~Trainer() = default;

    /// Train one iteration and return its metrics.
    virtual Metrics train() = 0;

    /// Write the training state into `folder`, which is there and empty: files and folders, no links.
    virtual void save(const std::filesystem::path& folder) = 0;

    /// Take up the state that `save` wrote; `folder` is not to be changed. Called once, before the first `train`. Hyperparameters
    /// are the context's, also where they differ from those that the state was saved with: save none.
    virtual void load(const std::filesystem::path& folder) = 0;

    /// Units of the experiment (steps, epochs) that one `train` trains; 1 or more.
    virtual std::int64_t units() const { return 1; }

    /// Whether there is nothing left to train: the job completes here.
    virtual bool finished() const { return false; }
};

using Factory = std::function<std::unique_ptr<Trainer>(const Context&)>;

/// Make the run that this process was started for; returns the exit code for `main`.
///
/// Without a cluster it trains what $HOPYARD_HYPERPARAMETERS (a JSON object) and $HOPYARD_SEED say, prints the metrics, and has
/// two options: `--hopyard-until=N` ends at position N, and `--hopyard-verify-resume` with it checks that a trainer that is
/// saved and loaded after each iteration brings the same metrics, to the last bit, as one that is not.
int run(int argc, const char* const* argv, const Factory& factory);

/// The same for a trainer whose constructor takes a Context.
template <class T>
int run(int argc, const char* const* argv) {
    return run(argc, argv, [](const Context& context) { return std::make_unique<T>(context); });
}

// --- Scripts ---

/// The file or folder, under the name that it was given to `report`, from which to go on; none: begin from scratch. Called
/// before `go_on` and `report`; positions then count on from the checkpoint's.
/// @throws UsageError  It comes too late, or another process speaks for the run.
/// @throws Error  The snapshot cannot be read; that was told.
std::optional<std::filesystem::path> checkpoint();

/// Whether there is something to train: false once the run is over, and then the program leaves, with exit code 0.
/// @throws UsageError  Another process speaks for the run.
bool go_on();

/// Report the metrics of an iteration that ended; returns when the program may train on, or knows that it is to leave. Once
/// the run is over nothing is reported any more. A program that ends by itself, with exit code 0, has finished its job.
/// @param checkpoint  A file or folder that holds the training state at this position. It is packed before this returns, and
///     only if a snapshot is wanted. Without one a job that is suspended begins again from scratch.
/// @param position  How far the job has trained, in units, above the last report's; without: one more than that.
/// @throws UsageError  A metric's name, the position or the checkpoint is not allowed, or another process speaks for the run.
/// @throws Error  The checkpoint could not be saved; that was told.
Decision report(const Metrics& metrics, const std::optional<std::filesystem::path>& checkpoint = std::nullopt,
                std::optional<std::int64_t> position = std::nullopt);

/// What was decided last.
Decision decision();

/// The job's hyperparameters; without a cluster, those in $HOPYARD_HYPERPARAMETERS, else none.
/// @throws HyperparameterError  The variable holds something else than a JSON object.
Hyperparameters hyperparameters();

/// The job's training seed; without a cluster $HOPYARD_SEED, else 0.
/// @throws HyperparameterError  The variable holds no whole number.
std::int64_t seed();

}  // namespace hopyard
