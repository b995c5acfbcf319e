#include "hopyard/values.h"

#include <cmath>

#include "json.h"

namespace hopyard {
namespace {

constexpr std::size_t shown = 200;

std::string names(const Value::Map& values) {
    std::string all;
    for (const auto& [name, value] : values) all += (all.empty() ? "" : ", ") + name;
    return all.empty() ? "none" : all;
}

}  // namespace

std::string Value::text() const { return json::write(*this); }

Hyperparameters Hyperparameters::parse(std::string_view text) {
    const std::string found = "; found '" + std::string(text.substr(0, shown)) + "'";
    Value value;
    try {
        value = json::parse(text);
    } catch (const json::SyntaxError& error) {
        throw HyperparameterError(std::string("hyperparameters need a JSON object such as {\"lr\": 0.1}: ") + error.what() + found);
    }
    const Value::Map* map = value.get_if<Value::Map>();
    if (map == nullptr) throw HyperparameterError("hyperparameters need a JSON object such as {\"lr\": 0.1}" + found);
    return Hyperparameters(*map);
}

const Value* Hyperparameters::find(std::string_view name) const {
    const Value::Map* group = &values_;
    while (true) {
        if (const auto whole = group->find(std::string(name)); whole != group->end()) return &whole->second;
        const std::size_t dot = name.find('.');
        if (dot == std::string_view::npos) return nullptr;
        const auto inner = group->find(std::string(name.substr(0, dot)));
        if (inner == group->end()) return nullptr;
        group = inner->second.get_if<Value::Map>();
        if (group == nullptr) return nullptr;
        name.remove_prefix(dot + 1);
    }
}

const Value& Hyperparameters::need(std::string_view name) const {
    const Value* found = find(name);
    if (found == nullptr) {
        throw HyperparameterError("there is no hyperparameter '" + std::string(name) + "'; the job has: " + names(values_));
    }
    return *found;
}

namespace detail {

void misfit(std::string_view name, const Value& value, const std::string& wanted) {
    throw HyperparameterError("hyperparameter '" + std::string(name) + "' is " + value.text().substr(0, shown) +
                              "; the program wants " + wanted);
}

std::int64_t whole(std::string_view name, const Value& value, std::int64_t least, std::int64_t most) {
    const std::string wanted = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
    std::int64_t found = 0;
    if (const std::int64_t* held = value.get_if<std::int64_t>()) {
        found = *held;
    } else if (const double* held_real = value.get_if<double>();
               held_real != nullptr && std::trunc(*held_real) == *held_real && std::fabs(*held_real) <= 9007199254740992.0) {
        found = static_cast<std::int64_t>(*held_real);
    } else {
        misfit(name, value, wanted);
    }
    if (found < least || found > most) misfit(name, value, wanted);
    return found;
}

double real(std::string_view name, const Value& value) {
    if (const double* held = value.get_if<double>()) return *held;
    if (const std::int64_t* held = value.get_if<std::int64_t>()) return static_cast<double>(*held);
    misfit(name, value, "a number");
}

}  // namespace detail
}  // namespace hopyard
