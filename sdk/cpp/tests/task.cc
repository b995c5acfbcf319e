// The task of the conformance program (docs/protocol.md), as a trainer and as a script.
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "hopyard/hopyard.h"

namespace {

/// A number that grows; its state is the number as text.
class Task {
  public:
    explicit Task(const hopyard::Hyperparameters& given)
        : given_(given), step_(given.get<double>("lr") * (given.get<bool>("twice", false) ? 2 : 1)), x_(given.get<double>("start.x", 0)) {
        if (given.get<std::string>("sign", "plus") == "minus") step_ = -step_;
    }

    hopyard::Metrics next(std::int64_t position) {
        std::this_thread::sleep_for(std::chrono::duration<double>(given_.get<double>("seconds", 0)));
        x_ += step_;
        const bool nan = given_.get<std::int64_t>("nan_at", -1) == position;
        return {{"value", nan ? std::numeric_limits<double>::quiet_NaN() : x_}};
    }

    bool over(std::int64_t position) const { return given_.has("last") && position >= given_.get<std::int64_t>("last"); }

    void write(const std::filesystem::path& file) const {
        char digits[32];
        std::ofstream(file) << std::string(digits, std::to_chars(digits, digits + sizeof digits, x_).ptr);
    }

    void read(const std::filesystem::path& file) {
        if (!(std::ifstream(file) >> x_)) throw std::runtime_error("no number in " + file.string());
    }

  private:
    hopyard::Hyperparameters given_;
    double step_, x_;
};

class Trainer : public hopyard::Trainer {
  public:
    explicit Trainer(const hopyard::Context& context) : task_(context.hyperparameters), position_(context.position) {}
    hopyard::Metrics train() override { return task_.next(++position_); }
    void save(const std::filesystem::path& folder) override { task_.write(folder / "x"); }
    void load(const std::filesystem::path& folder) override { task_.read(folder / "x"); }
    bool finished() const override { return task_.over(position_); }

  private:
    Task task_;
    std::int64_t position_;
};

/// With a loop of its own. Its folder is written anew for each report, and is the checkpoint.
int script() {
    Task task(hopyard::hyperparameters());
    const auto state = hopyard::checkpoint();
    std::int64_t position = 0;
    if (state) {
        task.read(*state / "x");
        if (!(std::ifstream(*state / "position") >> position)) throw std::runtime_error("no position");
    }
    const std::filesystem::path folder = "state-" + std::to_string(getpid());  // Runs that are tried at a time share a folder.
    std::filesystem::create_directories(folder);
    while (hopyard::go_on() && !task.over(position)) {
        const hopyard::Metrics metrics = task.next(++position);
        task.write(folder / "x");
        std::ofstream(folder / "position") << position;
        hopyard::report(metrics, folder, position);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2 || std::string(argv[1]) != "script") return hopyard::run<Trainer>(argc, argv);
    try {
        return script();
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
