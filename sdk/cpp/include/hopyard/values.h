// Hyperparameters: what the values of a job's configuration are, and how a program asks for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace hopyard {

/// Root of what this library throws. The message names what was found and what is allowed.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A hyperparameter is missing, or is not of the type that the program wants.
class HyperparameterError : public Error {
  public:
    using Error::Error;
};

/// What JSON can hold; whole numbers and numbers with a fraction stay apart.
class Value {
  public:
    using List = std::vector<Value>;
    using Map = std::map<std::string, Value>;

    Value() = default;
    Value(std::nullptr_t) {}
    Value(bool value) : held_(value) {}
    Value(double value) : held_(value) {}
    template <class Whole, std::enable_if_t<std::is_integral_v<Whole> && !std::is_same_v<Whole, bool>, int> = 0>
    Value(Whole value) : held_(static_cast<std::int64_t>(value)) {}
    Value(std::string value) : held_(std::move(value)) {}
    Value(const char* value) : held_(std::string(value)) {}
    Value(List value) : held_(std::move(value)) {}
    Value(Map value) : held_(std::move(value)) {}

    bool is_null() const { return std::holds_alternative<std::monostate>(held_); }

    /// What it holds, if that is a bool, std::int64_t, double, std::string, List or Map; nullptr: something else.
    template <class T>
    const T* get_if() const {
        return std::get_if<T>(&held_);
    }

    /// As JSON, for people.
    std::string text() const;

    friend bool operator==(const Value& one, const Value& other) { return one.held_ == other.held_; }
    friend bool operator!=(const Value& one, const Value& other) { return !(one == other); }

  private:
    std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Map> held_;
};

/// One configuration: values by name. A name inside a group has dots, such as "model.depth".
class Hyperparameters {
  public:
    Hyperparameters() = default;
    explicit Hyperparameters(Value::Map values) : values_(std::move(values)) {}

    /// Read a JSON object.
    /// @throws HyperparameterError  It is none.
    static Hyperparameters parse(std::string_view json);

    /// Whether the job has it: a parameter with a `when` may be left out.
    bool has(std::string_view name) const { return find(name) != nullptr; }

    /// The value as a T: bool, a type of whole or floating-point numbers, std::string, Value, or a std::vector of these.
    /// A whole number is fine where a floating-point one is wanted, and 32.0 where a whole one is.
    /// @throws HyperparameterError  There is none, or it does not fit.
    template <class T>
    T get(std::string_view name) const;

    /// The same, or `otherwise` where the job does not have it.
    /// @throws HyperparameterError  It does not fit.
    template <class T>
    T get(std::string_view name, T otherwise) const {
        return has(name) ? get<T>(name) : std::move(otherwise);
    }

    const Value::Map& values() const { return values_; }

  private:
    const Value* find(std::string_view name) const;
    const Value& need(std::string_view name) const;

    Value::Map values_;
};

namespace detail {

/// Throws a HyperparameterError: `value` is not what is `wanted`.
[[noreturn]] void misfit(std::string_view name, const Value& value, const std::string& wanted);
std::int64_t whole(std::string_view name, const Value& value, std::int64_t least, std::int64_t most);
double real(std::string_view name, const Value& value);

template <class T>
struct Fitted {
    static T from(std::string_view name, const Value& value) {
        if constexpr (std::is_same_v<T, Value>) {
            return value;
        } else if constexpr (std::is_same_v<T, bool>) {
            if (const bool* held = value.get_if<bool>()) return *held;
            misfit(name, value, "true or false");
        } else if constexpr (std::is_integral_v<T>) {
            constexpr auto top = std::numeric_limits<std::int64_t>::max();
            constexpr bool wide = sizeof(T) == sizeof(std::int64_t) && std::is_unsigned_v<T>;
            constexpr std::int64_t most = wide ? top : static_cast<std::int64_t>(std::numeric_limits<T>::max());
            return static_cast<T>(whole(name, value, static_cast<std::int64_t>(std::numeric_limits<T>::min()), most));
        } else if constexpr (std::is_floating_point_v<T>) {
            return static_cast<T>(real(name, value));
        } else {
            static_assert(std::is_same_v<T, std::string>,
                          "hyperparameters are bool, numbers, std::string, hopyard::Value, or a std::vector of these");
            if (const std::string* held = value.get_if<std::string>()) return *held;
            misfit(name, value, "a text");
        }
    }
};

template <class T>
struct Fitted<std::vector<T>> {
    static std::vector<T> from(std::string_view name, const Value& value) {
        const Value::List* held = value.get_if<Value::List>();
        if (held == nullptr) misfit(name, value, "a list");
        std::vector<T> fitted;
        fitted.reserve(held->size());
        for (std::size_t index = 0; index < held->size(); ++index) {
            fitted.push_back(Fitted<T>::from(std::string(name) + "[" + std::to_string(index) + "]", (*held)[index]));
        }
        return fitted;
    }
};

}  // namespace detail

template <class T>
T Hyperparameters::get(std::string_view name) const {
    return detail::Fitted<T>::from(name, need(name));
}

}  // namespace hopyard
