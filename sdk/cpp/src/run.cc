// The run of a trainer: made, loaded, trained from boundary to boundary, saved where it is wanted.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "failures.h"
#include "metrics.h"
#include "session.h"

namespace hopyard {
namespace {

namespace fs = std::filesystem;
using detail::Position;

constexpr std::string_view until_option = "--hopyard-until=";
constexpr std::string_view verify_option = "--hopyard-verify-resume";

struct Options {
    Position until = 0;
    bool verify = false;
    std::vector<std::string> others;
};

Options options_of(int argc, const char* const* argv) {
    Options options;
    for (int index = 1; index < argc; ++index) {
        const std::string_view argument = argv[index];
        if (argument == verify_option) {
            options.verify = true;
        } else if (argument.substr(0, until_option.size()) == until_option) {
            const std::string_view text = argument.substr(until_option.size());
            const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), options.until);
            if (error != std::errc() || stop != text.data() + text.size() || options.until < 1) {
                throw UsageError(std::string(argument) + ": allowed: --hopyard-until=N with a whole number, 1 or more");
            }
        } else {
            options.others.emplace_back(argument);
        }
    }
    if (options.verify && options.until == 0) throw UsageError("--hopyard-verify-resume needs --hopyard-until=N");
    return options;
}

/// One trainer between its making and its end; `phase` says which of the user's methods is under way.
class Training {
  public:
    Training(const Factory& factory, const Context& context) : position_(context.position) {
        trainer_ = factory(context);
        if (trainer_ == nullptr) throw UsageError("the factory given to hopyard::run() made no trainer");
    }

    const char* phase() const { return phase_; }
    Position position() const { return position_; }
    bool finished() const { return trainer_->finished(); }

    void load(const fs::path& folder) {
        phase_ = "load";
        trainer_->load(folder);
        phase_ = "train";
    }

    Metrics train() {
        phase_ = "train";
        const Position units = trainer_->units();
        if (units < 1) throw UsageError("units() is " + std::to_string(units) + "; allowed: 1 or more");
        Metrics metrics = trainer_->train();
        detail::check_metrics(metrics, "train() returned");
        position_ += units;
        return metrics;
    }

    void save(const fs::path& folder) {
        phase_ = "save";
        fs::remove_all(folder);
        fs::create_directories(folder);
        trainer_->save(folder);
    }

  private:
    std::unique_ptr<Trainer> trainer_;
    Position position_;
    const char* phase_ = "train";
};

int make_run(detail::Session& session, const Factory& factory, Context context) {
    std::unique_ptr<Training> training;
    const char* phase = "create";
    try {
        context.position = session.position();
        context.scratch = session.scratch();
        context.hyperparameters = hyperparameters();
        context.seed = seed();
        phase = "load";
        const std::optional<fs::path> state = session.state();
        phase = "create";
        training = std::make_unique<Training>(factory, context);
        if (state) training->load(*state);
        const detail::Saver save = [&] {
            const fs::path saving = context.scratch.parent_path() / "saving" / "state";
            training->save(saving);
            return saving;
        };
        Decision decision = session.begin(training->finished());
        while (decision == Decision::go_on) {
            const Metrics metrics = training->train();
            decision = session.report(training->position(), metrics, training->finished(), session.saves() ? save : nullptr);
        }
        return 0;
    } catch (...) {
        if (training != nullptr) phase = training->phase();
        const Position position = training != nullptr ? training->position() : context.position;
        const detail::Failure failed = detail::failure(phase, position, context.scratch);
        std::fprintf(stderr, "hopyard: %s\n", failed.message.c_str());
        session.fail(failed.message, failed.user);
        return 1;
    }
}

/// Train with a save, a new trainer and a load after each iteration, and compare with a trainer that knows of nothing.
int verify_resume(const Factory& factory, Context context, Position until) {
    const std::unique_ptr<detail::Session> alone = detail::alone_session(0);
    context.scratch = alone->scratch();
    context.hyperparameters = hyperparameters();
    context.seed = seed();
    const fs::path state = context.scratch / "state";
    Training straight(factory, context);
    auto resumed = std::make_unique<Training>(factory, context);
    while (straight.position() < until && !straight.finished()) {
        const Metrics metrics = straight.train(), again = resumed->train();
        alone->report(straight.position(), metrics, false, nullptr);
        const auto same = [](const auto& one, const auto& other) {
            return one.first == other.first &&
                   (one.second == other.second || (one.second != one.second && other.second != other.second));
        };
        if (!std::equal(metrics.begin(), metrics.end(), again.begin(), again.end(), same)) {
            std::fprintf(stderr, "hopyard: at position %lld the trainer that was resumed brings other metrics: %s; does save() keep "
                                 "everything that changes while it trains?\n",
                         static_cast<long long>(straight.position()), detail::shown(again).c_str());
            return 1;
        }
        resumed->save(state);
        context.position = straight.position();
        resumed = std::make_unique<Training>(factory, context);
        resumed->load(state);
    }
    return 0;
}

}  // namespace

int run(int argc, const char* const* argv, const Factory& factory) {
    try {
        const Options options = options_of(argc, argv);
        Context context;
        context.arguments = options.others;
        context.experiment = detail::variable("HOPYARD_EXPERIMENT");
        context.job = detail::variable("HOPYARD_JOB");
        if (detail::on_cluster()) {
            const std::unique_ptr<detail::Session> session = detail::attached(true);
            const int code = make_run(*session, factory, context);
            session->close();
            return code;
        }
        if (options.verify) return verify_resume(factory, context, options.until);
        return make_run(*detail::alone_session(options.until), factory, context);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "hopyard: %s\n", error.what());
        return 1;
    }
}

}  // namespace hopyard
