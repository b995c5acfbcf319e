// What the tests in Python compare with their own library: JSON and the control of a run.
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "control.h"
#include "json.h"

namespace {

using namespace hopyard::detail;

std::string named(const Action& action) {
    static const char* const steps[] = {"train", "restate", "save", "wait", "end"};
    static const char* const reasons[] = {"UNTIL", "SUSPENDED", "TERMINATED"};
    const std::string step = steps[static_cast<int>(action.step)];
    if (action.step != Step::end) return step;
    return step + " " + reasons[static_cast<int>(action.reason)] + (action.snapshot ? " 1" : " 0");
}

/// One line a call: its name and whole numbers; answers with a line each.
void control() {
    std::unique_ptr<Control> control;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        const std::vector<Position> numbers{std::istream_iterator<Position>(words), {}};
        const auto rest = [&](std::size_t from) { return std::vector<Position>(numbers.begin() + static_cast<long>(from), numbers.end()); };
        if (word == "plan") {
            const std::vector<Position> points = rest(5);
            Plan plan{numbers[0], numbers[1], numbers[2], {points.begin(), points.end()}, numbers[3], numbers[4] != 0};
            control = std::make_unique<Control>(plan);
            std::cout << "ok";
        } else if (word == "next") {
            std::cout << named(control->next());
        } else if (word == "started") {
            control->started(numbers[0] != 0);
            std::cout << "ok";
        } else if (word == "began") {
            control->began();
            std::cout << "ok";
        } else if (word == "reached") {
            std::cout << control->reached(numbers[0], numbers[1] != 0, numbers[2] != 0);
        } else if (word == "saved") {
            control->saved();
            std::cout << "ok";
        } else if (word == "decide") {
            control->decide(static_cast<Command>(numbers[0]), numbers[1], numbers[2]);
            std::cout << "ok";
        } else if (word == "amend") {
            const Amended amended = control->amend(numbers[0], rest(1));
            std::cout << amended.accepted << " " << amended.position;
        }
        std::cout << std::endl;
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    try {
        if (what == "json") {
            for (std::string line; std::getline(std::cin, line);) {
                std::cout << hopyard::json::write(hopyard::json::parse(line)) << "\n";
            }
        } else if (what == "control") {
            control();
        } else {
            std::cerr << "usage: hopyard_probe json|control\n";
            return 2;
        }
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
    return 0;
}
