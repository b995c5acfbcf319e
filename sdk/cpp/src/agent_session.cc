// A run whose process is attached to its agent.
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "attachment.h"
#include "boundary.h"
#include "failures.h"
#include "lease.h"
#include "session.h"

namespace hopyard::detail {
namespace {

namespace fs = std::filesystem;

void end_with_the_agent() {
    const int agent = std::atoi(variable("HOPYARD_AGENT_PID", "0").c_str());
    if (getppid() == agent) die_with(agent);  // Else a shell, say, stands between them: the lease is what holds then.
}

class AgentSession : public Session {
  public:
    AgentSession(const std::string& token, bool resume)
        : resume_(resume),
          attachment_(variable("HOPYARD_AGENT"), token, [resume](const v1::ApplicationStart& start, Outbox& outbox) {
              return std::make_shared<Boundary>(start, outbox, resume);
          }) {
        Attachment::Answer answer = attachment_.wait();
        if (answer.start == nullptr) {
            throw UsageError(elsewhere("another process") + " (the run's agent says: " + answer.refused + ")");
        }
        start_ = std::move(*answer.start);
        boundary_ = std::move(answer.boundary);
    }

    Position position() override { return boundary_->position(); }

    fs::path scratch() override {
        const fs::path folder = fs::path(start_.scratch_folder()) / "files";
        fs::create_directories(folder);
        return folder;
    }

    std::optional<fs::path> state() override {
        if (!resume_ || !start_.start().has_snapshot()) return std::nullopt;
        const fs::path folder = fs::path(start_.scratch_folder()) / "checkpoint";
        attachment_.load(folder);
        const fs::directory_iterator held(folder);
        if (held == fs::directory_iterator()) throw Lost("the snapshot is empty");
        return held->path();
    }

    bool saves() const override { return true; }

    Decision begin(bool finished) override {
        boundary_->started(finished);
        const Decision decision = go_on(nullptr, finished);
        began_ = program_began();  // What it took to come here belongs to the first iteration.
        return decision;
    }

    Decision report(Position position, const Metrics& metrics, bool finished, const Saver& save) override {
        boundary_->report(position, metrics, monotonic_seconds() - began_, finished, static_cast<bool>(save));
        return go_on(save, finished);
    }

    void fail(const std::string& message, bool user) override {
        attachment_.forget();
        boundary_->fail(message, user);
    }

    void close() override { attachment_.close(); }

  private:
    Decision go_on(const Saver& save, bool finished) {
        while (true) {
            const Action action = boundary_->next();
            switch (action.step) {
                case Step::restate:
                    boundary_->restate(finished);
                    break;
                case Step::save:
                    boundary_->saved(attachment_.save(save(), boundary_->position()));
                    break;
                case Step::end:
                    attachment_.forget();
                    boundary_->end(action);
                    return decided(action.reason);
                default:
                    began_ = monotonic_seconds();
                    return Decision::go_on;
            }
        }
    }

    static Decision decided(Reason reason) {
        if (reason == Reason::until) return Decision::reached;
        return reason == Reason::suspended ? Decision::suspended : Decision::terminated;
    }

    bool resume_;
    double began_ = 0;
    v1::ApplicationStart start_;
    std::shared_ptr<Boundary> boundary_;
    Attachment attachment_;
};

}  // namespace

std::unique_ptr<Session> agent_session(const std::string& token, bool resume) {
    end_with_the_agent();
    // Children know that this process speaks, and have no word with which they could.
    unsetenv("HOPYARD_TOKEN");
    setenv("HOPYARD_SPEAKER", std::to_string(getpid()).c_str(), 1);
    // Children that are forked do not use gRPC, which would warn of them otherwise.
    setenv("GRPC_ENABLE_FORK_SUPPORT", "false", 0);
    return std::make_unique<AgentSession>(token, resume);
}

}  // namespace hopyard::detail
