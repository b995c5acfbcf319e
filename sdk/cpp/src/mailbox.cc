// A run whose processes may be dumped and restored: it speaks to its runner by files that are open only for a moment.
//
// It has no connection that a dump would break, and needs nothing of the place where it goes on but its folder.
#include <sys/select.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "files.h"
#include "json.h"
#include "lease.h"
#include "session.h"

namespace hopyard::detail {
namespace {

namespace fs = std::filesystem;

constexpr long look_microseconds = 3000;

class MailboxSession : public Session {
  public:
    explicit MailboxSession(const fs::path& folder) : folder_(folder) {
        const fs::path speaker = folder_ / "speaker";
        try {
            File file = File::making(speaker);
            file.write(std::to_string(getpid()));
            file.close();
        } catch (const std::system_error& error) {
            if (error.code().value() != EEXIST) throw;
            throw UsageError(elsewhere("process " + contents(speaker)));
        }
    }

    Position position() override { return position_; }

    fs::path scratch() override {
        const fs::path folder = folder_ / "files";
        fs::create_directories(folder);
        return folder;
    }

    Decision begin(bool finished) override {
        began_ = program_began();
        return finished ? Decision::reached : Decision::go_on;
    }

    Decision report(Position position, const Metrics& metrics, bool finished, const Saver& save) override {
        Value::Map values(metrics.begin(), metrics.end());
        Value::Map said{{"position", position}, {"metrics", std::move(values)}, {"seconds", monotonic_seconds() - began_}};
        if (save) said.emplace("checkpoint", named(save()));
        position_ = position;
        // A checkpoint may be written over when this returns: the runner packs it meanwhile, if the run takes snapshots of these.
        const bool waits = static_cast<bool>(save);
        File file = File::appending(folder_ / "reports");
        file.write(json::write(said) + "\n");
        file.close();
        std::optional<Decision> decision = answer(waits);
        while (!decision) {
            // A time that is left, not one of the clock of the computer on which this was called.
            timeval left{0, look_microseconds};
            select(0, nullptr, nullptr, nullptr, &left);
            decision = answer(waits);
        }
        began_ = monotonic_seconds();
        return finished && *decision == Decision::go_on ? Decision::reached : *decision;
    }

    /// The runner tells the last lines that a program printed before its exit code.
    void fail(const std::string&, bool) override {}

  private:
    /// What a file or folder is called, and where it lies.
    static Value::List named(const fs::path& entry) {
        fs::path whole = fs::absolute(entry).lexically_normal();
        if (!whole.has_filename()) whole = whole.parent_path();
        return {whole.filename().string(), fs::canonical(whole).string()};
    }

    std::optional<Decision> answer(bool waits) const {
        Value said;
        try {
            said = json::parse(contents(folder_ / "said"));
        } catch (const std::system_error& error) {
            if (error.code().value() == ENOENT) return std::nullopt;  // The runner has not spoken yet.
            throw;
        }
        const Hyperparameters words(*said.get_if<Value::Map>());
        const std::string leave = words.get<std::string>("leave", "");
        if (leave == "UNTIL") return Decision::reached;
        if (leave == "SUSPENDED") return Decision::suspended;
        if (!leave.empty()) return Decision::terminated;
        const bool free = !waits && position_ < words.get<Position>("free", -1);
        return free || position_ <= words.get<Position>("go", -1) ? std::optional(Decision::go_on) : std::nullopt;
    }

    fs::path folder_;
    Position position_ = 0;
    double began_ = 0;
};

}  // namespace

std::unique_ptr<Session> mailbox_session(const fs::path& folder) { return std::make_unique<MailboxSession>(folder); }

}  // namespace hopyard::detail
