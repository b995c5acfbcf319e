// The free functions of a script, and the session that this process speaks in.
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "failures.h"
#include "lease.h"
#include "metrics.h"
#include "session.h"

namespace hopyard {
namespace detail {
namespace {

const double began = monotonic_seconds();

constexpr Position furthest = 2147483647;

struct Script {
    std::unique_ptr<Session> session;
    Decision decision = Decision::go_on;
    std::optional<std::filesystem::path> state;
    bool resumes = false;
};

std::mutex mutex;
Script* script = nullptr;  // Never destroyed: a child that was forked and exits has none of its threads.
pid_t speaker = 0;

void leave() {
    if (getpid() == speaker && script != nullptr) script->session->close();
}

void need_own_process() {
    if (getpid() != speaker) throw UsageError(elsewhere("process " + std::to_string(speaker)));
}

/// Do something that may fail; whoever waits for the run is told.
template <class Act>
void telling(const char* phase, const Act& act) {
    try {
        act();
    } catch (const std::exception&) {
        const Failure failed = failure(phase, script->session->position(), std::filesystem::current_path());
        script->session->fail(failed.message, failed.user);
        script->decision = Decision::failed;
        throw Error(failed.message);
    }
}

Script& attach(bool resume) {
    if (script != nullptr) {
        need_own_process();
        return *script;
    }
    std::unique_ptr<Script> made = std::make_unique<Script>();
    made->session = attached(resume);
    made->resumes = resume;
    speaker = getpid();
    script = made.release();
    std::atexit(leave);
    if (resume) telling("load", [] { script->state = script->session->state(); });
    script->decision = script->session->begin(false);
    return *script;
}

}  // namespace

double program_began() { return began; }

std::string variable(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value == nullptr ? otherwise : value;
}

std::string elsewhere(const std::string& speaks) {
    return speaks + " speaks for this run, and process " + std::to_string(getpid()) +
           " cannot; allowed: one process of a run that reports or asks for its checkpoint, such as rank 0";
}

bool on_cluster() {
    return std::getenv("HOPYARD_MAILBOX") != nullptr || std::getenv("HOPYARD_TOKEN") != nullptr ||
           std::getenv("HOPYARD_SPEAKER") != nullptr;
}

std::unique_ptr<Session> attached(bool resume) {
    if (!on_cluster()) return alone_session(0);
    if (const std::string folder = variable("HOPYARD_MAILBOX"); !folder.empty()) return mailbox_session(folder);
    const std::string token = variable("HOPYARD_TOKEN");
    if (token.empty()) throw UsageError(elsewhere("process " + variable("HOPYARD_SPEAKER")));
    return agent_session(token, resume);
}

}  // namespace detail

std::optional<std::filesystem::path> checkpoint() {
    const std::lock_guard lock(detail::mutex);
    detail::Script& script = detail::attach(true);
    if (!script.resumes) {
        throw UsageError(
            "hopyard::checkpoint() was called after hopyard::go_on() or hopyard::report(); allowed: before them, and positions "
            "then count on from the checkpoint's");
    }
    return script.state;
}

bool go_on() {
    const std::lock_guard lock(detail::mutex);
    return detail::attach(false).decision == Decision::go_on;
}

Decision decision() {
    const std::lock_guard lock(detail::mutex);
    return detail::script == nullptr ? Decision::go_on : detail::script->decision;
}

Decision report(const Metrics& metrics, const std::optional<std::filesystem::path>& state, std::optional<std::int64_t> position) {
    const std::lock_guard lock(detail::mutex);
    detail::check_metrics(metrics, "hopyard::report() got");
    if (state && !std::filesystem::is_regular_file(*state) && !std::filesystem::is_directory(*state)) {
        throw UsageError("hopyard::report(): checkpoint '" + state->string() + "' is not there; allowed: a file or a folder");
    }
    detail::Script& script = detail::attach(false);
    if (script.decision != Decision::go_on) return script.decision;
    const detail::Position reached = script.session->position();
    const detail::Position now = position.value_or(reached + 1);
    if (now <= reached || now > detail::furthest) {
        throw UsageError("hopyard::report(): position is " + std::to_string(now) + "; allowed: above the last one's, " +
                         std::to_string(reached) + ", and at most " + std::to_string(detail::furthest));
    }
    detail::Saver save;
    if (state) save = [&] { return *state; };
    detail::telling("save", [&] { script.decision = script.session->report(now, metrics, false, save); });
    return script.decision;
}

Hyperparameters hyperparameters() { return Hyperparameters::parse(detail::variable("HOPYARD_HYPERPARAMETERS", "{}")); }

std::int64_t seed() {
    const std::string text = detail::variable("HOPYARD_SEED", "0");
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size() || text.empty()) {
        throw HyperparameterError("HOPYARD_SEED needs a whole number, found '" + text.substr(0, 200) + "'");
    }
    return value;
}

}  // namespace hopyard
