// A program of a user's for the tests of runs: it counts, as a trainer or as a script, and can misbehave.
//
//     hopyard_counter trainer|script [--KIND=POSITION] ...
//
// KIND is throw, exit, crash, hang, finish, nan, save-throw or load-throw at a position; of a script also fork, and forget=0.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "hopyard/hopyard.h"

namespace {

namespace fs = std::filesystem;

/// Numbers that depend on everything before: what is lost on the way shows.
std::uint64_t mixed(std::uint64_t state) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^ (state << 17);
}

class Misdeeds {
  public:
    explicit Misdeeds(const std::vector<std::string>& arguments) : arguments_(arguments) {}

    bool at(const std::string& kind, std::int64_t position) const {
        for (const std::string& argument : arguments_) {
            if (argument == "--" + kind + "=" + std::to_string(position)) return true;
        }
        return false;
    }

    void commit(std::int64_t position) const {
        if (at("throw", position)) throw std::runtime_error("the count ran out");
        if (at("exit", position)) std::exit(3);
        if (at("crash", position)) std::abort();
        if (at("hang", position)) std::this_thread::sleep_for(std::chrono::hours(1));
    }

  private:
    std::vector<std::string> arguments_;
};

double metric(std::uint64_t state) { return static_cast<double>(state >> 11) / 9007199254740992.0; }

class Counter : public hopyard::Trainer {
  public:
    explicit Counter(const hopyard::Context& context)
        : misdeeds_(context.arguments),
          state_(static_cast<std::uint64_t>(context.seed) + 88172645463325252U),
          position_(context.position),
          step_(context.hyperparameters.get<int>("step", 1)) {}

    hopyard::Metrics train() override {
        misdeeds_.commit(position_);
        for (int count = 0; count < step_; ++count) state_ = mixed(state_);
        ++position_;
        return {{"count", misdeeds_.at("nan", position_) ? std::numeric_limits<double>::quiet_NaN() : metric(state_)}};
    }

    void save(const fs::path& folder) override {
        if (misdeeds_.at("save-throw", position_)) throw std::runtime_error("nothing to save");
        std::ofstream(folder / "state") << state_;
    }

    void load(const fs::path& folder) override {
        if (misdeeds_.at("load-throw", position_)) throw std::runtime_error("nothing to load");
        if (!(std::ifstream(folder / "state") >> state_)) throw std::runtime_error("no state in " + folder.string());
    }

    bool finished() const override { return misdeeds_.at("finish", position_); }

  private:
    Misdeeds misdeeds_;
    std::uint64_t state_;
    std::int64_t position_;
    int step_;
};

/// Whether a child of this process is refused.
bool child_is_refused() {
    const pid_t child = fork();
    if (child == 0) {
        try {
            hopyard::report({{"count", 1.0}});
        } catch (const hopyard::UsageError&) {
            std::exit(42);
        }
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

int count(const std::vector<std::string>& arguments) {
    const Misdeeds misdeeds(arguments);
    std::uint64_t state = static_cast<std::uint64_t>(hopyard::seed()) + 88172645463325252U;
    std::int64_t position = 0;
    const bool saves = !misdeeds.at("forget", 0);
    if (saves) {
        if (const auto last = hopyard::checkpoint()) std::ifstream(*last) >> state >> position;
    }
    while (hopyard::go_on()) {
        misdeeds.commit(position);
        if (misdeeds.at("finish", position)) return 0;
        state = mixed(state);
        ++position;
        if (misdeeds.at("fork", position) && !child_is_refused()) return 4;
        if (saves) {
            std::ofstream("last.txt") << state << " " << position;
            hopyard::report({{"count", metric(state)}}, "last.txt");
        } else {
            hopyard::report({{"count", metric(state)}});
        }
    }
    std::cout << "left: " << static_cast<int>(hopyard::decision()) << std::endl;
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments[0] == "script") return count(arguments);
    return hopyard::run<Counter>(argc, argv);
}
