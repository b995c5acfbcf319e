#include "json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <system_error>

namespace hopyard::json {
namespace {

constexpr int deepest = 200;

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}

    Value document() {
        Value value = any(0);
        skip_space();
        if (at_ != text_.size()) fail("more text behind the value");
        return value;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw SyntaxError(what + " at character " + std::to_string(at_ + 1));
    }

    void skip_space() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
    }

    bool took(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    Value any(int depth) {
        if (depth > deepest) fail("too many values inside of each other");
        skip_space();
        if (at_ == text_.size()) fail("no value");
        if (took("{")) return map(depth);
        if (took("[")) return list(depth);
        if (took("\"")) return string();
        if (took("null")) return Value();
        if (took("true")) return true;
        if (took("false")) return false;
        if (took("NaN")) return std::numeric_limits<double>::quiet_NaN();
        if (took("Infinity")) return std::numeric_limits<double>::infinity();
        if (took("-Infinity")) return -std::numeric_limits<double>::infinity();
        return number();
    }

    Value map(int depth) {
        Value::Map values;
        skip_space();
        if (took("}")) return values;
        do {
            skip_space();
            if (!took("\"")) fail("no name in double quotes");
            std::string name = string();
            skip_space();
            if (!took(":")) fail("no ':' behind a name");
            values.insert_or_assign(std::move(name), any(depth + 1));
            skip_space();
        } while (took(","));
        if (!took("}")) fail("neither ',' nor '}' behind a value");
        return values;
    }

    Value list(int depth) {
        Value::List values;
        skip_space();
        if (took("]")) return values;
        do {
            values.push_back(any(depth + 1));
            skip_space();
        } while (took(","));
        if (!took("]")) fail("neither ',' nor ']' behind a value");
        return values;
    }

    Value number() {
        const std::size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
        const std::string_view found = text_.substr(at_, end - at_);
        const std::string_view digits = found.substr(found.substr(0, 1) == "-" ? 1 : 0);
        if (digits.empty() || digits[0] < '0' || digits[0] > '9') fail("no value");
        if (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') fail("a number with leading zeros");
        if (const std::size_t dot = found.find('.'); dot != std::string_view::npos && found.find_first_of("0123456789", dot) != dot + 1) {
            fail("no digit behind a point");
        }
        const char* const last = found.data() + found.size();
        std::int64_t whole = 0;
        if (const auto [stop, error] = std::from_chars(found.data(), last, whole); error == std::errc() && stop == last) {
            at_ = end;
            return whole;
        }
        double real = 0;
        const auto [stop, error] = std::from_chars(found.data(), last, real);
        if (stop != last || (error != std::errc() && error != std::errc::result_out_of_range)) fail("a damaged number");
        if (error == std::errc::result_out_of_range) real = std::strtod(std::string(found).c_str(), nullptr);
        at_ = end;
        return real;
    }

    std::string string() {
        std::string value;
        while (true) {
            if (at_ == text_.size()) fail("a text without an end");
            const char next = text_[at_++];
            if (next == '"') return value;
            if (static_cast<unsigned char>(next) < 0x20) fail("a control character in a text");
            if (next != '\\') {
                value += next;
            } else {
                escaped(value);
            }
        }
    }

    void escaped(std::string& value) {
        static constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        const char letter = at_ < text_.size() ? text_[at_++] : '\0';
        if (const std::size_t index = letters.find(letter); letter != '\0' && index != std::string_view::npos) {
            value += meant[index];
            return;
        }
        if (letter != 'u') fail("an unknown escape");
        std::uint32_t code = unit();
        if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
            const std::size_t before = at_;
            at_ += 2;
            const std::uint32_t low = unit();
            if (low >= 0xDC00 && low < 0xE000) {
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            } else {
                at_ = before;
            }
        }
        append(value, code);
    }

    std::uint32_t unit() {
        std::uint32_t code = 0;
        const std::string_view digits = text_.substr(at_, 4);
        const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
        if (error != std::errc() || stop != digits.data() + 4) fail("an escape without four hexadecimal digits");
        at_ += 4;
        return code;
    }

    static void append(std::string& value, std::uint32_t code) {
        if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;  // Half a character: nothing could be done with it.
        if (code < 0x80) {
            value += static_cast<char>(code);
            return;
        }
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static constexpr unsigned char heads[] = {0, 0xC0, 0xE0, 0xF0};
        value += static_cast<char>(heads[more] | (code >> (6 * more)));
        for (int left = more - 1; left >= 0; --left) value += static_cast<char>(0x80 | ((code >> (6 * left)) & 0x3F));
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

void write_string(std::string& out, const std::string& text) {
    out += '"';
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            out += '\\';
            out += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(letter));
            out += escape;
        } else {
            out += letter;
        }
    }
    out += '"';
}

void write_number(std::string& out, double number) {
    if (std::isnan(number)) {
        out += "NaN";
    } else if (std::isinf(number)) {
        out += number < 0 ? "-Infinity" : "Infinity";
    } else {
        char digits[32];
        const std::string shortest(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
        out += shortest;
        if (shortest.find_first_of(".e") == std::string::npos) out += ".0";
    }
}

void write_any(std::string& out, const Value& value) {
    if (const bool* truth = value.get_if<bool>()) {
        out += *truth ? "true" : "false";
    } else if (const std::int64_t* whole = value.get_if<std::int64_t>()) {
        out += std::to_string(*whole);
    } else if (const double* real = value.get_if<double>()) {
        write_number(out, *real);
    } else if (const std::string* text = value.get_if<std::string>()) {
        write_string(out, *text);
    } else if (const Value::List* list = value.get_if<Value::List>()) {
        const char* between = "[";
        for (const Value& one : *list) {
            out += between;
            write_any(out, one);
            between = ", ";
        }
        out += list->empty() ? "[]" : "]";
    } else if (const Value::Map* map = value.get_if<Value::Map>()) {
        const char* between = "{";
        for (const auto& [name, one] : *map) {
            out += between;
            write_string(out, name);
            out += ": ";
            write_any(out, one);
            between = ", ";
        }
        out += map->empty() ? "{}" : "}";
    } else {
        out += "null";
    }
}

}  // namespace

Value parse(std::string_view text) { return Parser(text).document(); }

std::string write(const Value& value) {
    std::string out;
    write_any(out, value);
    return out;
}

}  // namespace hopyard::json
