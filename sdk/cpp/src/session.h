// A run as its program sees it, whatever stands on the other side: an agent, the runner of a dumpable process, or nobody.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "control.h"
#include "hopyard/hopyard.h"

namespace hopyard::detail {

/// Returns the file or folder that holds the state at the present position; called when a snapshot is wanted.
using Saver = std::function<std::filesystem::path()>;

class Session {
  public:
    Session() = default;
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    virtual ~Session() = default;

    /// The last position that was reached.
    virtual Position position() = 0;

    /// What to go on from. Called once at most, before `begin`.
    /// @throws Lost  It cannot be read.
    virtual std::optional<std::filesystem::path> state() { return std::nullopt; }

    /// A folder for the run's own files, which is there.
    virtual std::filesystem::path scratch() = 0;

    /// Whether a trainer's state is to be saved; a script's checkpoint is there in any case.
    virtual bool saves() const { return false; }

    /// The state is loaded; `finished`: nothing is left to train.
    virtual Decision begin(bool finished) = 0;

    /// Report a position above the last one, and wait until the program may train on. `save` may be empty.
    /// @throws StateRefused, Lost  The state cannot be kept; and what `save` throws.
    virtual Decision report(Position position, const Metrics& metrics, bool finished, const Saver& save) = 0;

    /// The program failed; `user`: by its own fault. Whoever waits for the run is told.
    virtual void fail(const std::string& message, bool user) = 0;

    /// The program ends: what it has said goes out first.
    virtual void close() {}
};

/// The session that this process's environment asks for. `resume`: it goes on from the state that there may be.
/// @throws UsageError  Another process speaks for the run.
std::unique_ptr<Session> attached(bool resume);

std::unique_ptr<Session> agent_session(const std::string& token, bool resume);
std::unique_ptr<Session> mailbox_session(const std::filesystem::path& folder);
std::unique_ptr<Session> alone_session(Position until);

/// Whether this process was started by an agent.
bool on_cluster();

/// Monotonic seconds at which this program began.
double program_began();

/// What is said to a process that cannot speak for the run, since `speaker` does.
std::string elsewhere(const std::string& speaker);

std::string variable(const char* name, const char* otherwise = "");

}  // namespace hopyard::detail
