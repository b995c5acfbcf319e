#include "metrics.h"

#include <charconv>

namespace hopyard::detail {
namespace {

constexpr std::size_t most_metrics = 1000;
constexpr std::size_t longest_name = 256;

/// Bytes of the character that a text begins with; 0: it begins with none.
std::size_t character(std::string_view text) {
    const auto head = static_cast<unsigned char>(text[0]);
    if (head < 0x80) return 1;
    const std::size_t size = head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
    if (head < 0xC2 || head > 0xF4 || text.size() < size) return 0;
    for (std::size_t index = 1; index < size; ++index) {
        if ((static_cast<unsigned char>(text[index]) & 0xC0) != 0x80) return 0;
    }
    const auto second = static_cast<unsigned char>(text[1]);
    const bool overlong = (head == 0xE0 && second < 0xA0) || (head == 0xF0 && second < 0x90);
    const bool beyond = (head == 0xED && second > 0x9F) || (head == 0xF4 && second > 0x8F);
    return overlong || beyond ? 0 : size;
}

bool is_name(std::string_view name) {
    std::size_t characters = 0;
    while (!name.empty()) {
        const std::size_t size = character(name);
        const auto head = static_cast<unsigned char>(name[0]);
        if (size == 0 || head < 0x20 || head == 0x7F || ++characters > longest_name) return false;
        name.remove_prefix(size);
    }
    return characters > 0;
}

}  // namespace

void check_metrics(const Metrics& metrics, const std::string& found) {
    if (metrics.size() > most_metrics) {
        throw UsageError(found + " " + std::to_string(metrics.size()) + " metrics; allowed: " + std::to_string(most_metrics));
    }
    for (const auto& [name, value] : metrics) {
        if (!is_name(name)) {
            throw UsageError(found + " the metric name '" + sendable(name, 80) + "'; allowed: 1 to " +
                             std::to_string(longest_name) + " printable characters of UTF-8");
        }
    }
}

std::string sendable(std::string_view text, std::size_t most) {
    std::string clean;
    while (!text.empty()) {
        const std::size_t size = character(text);
        const std::string_view next = size == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, size);
        if (clean.size() + next.size() > most) break;
        clean += next;
        text.remove_prefix(size == 0 ? 1 : size);
    }
    return clean;
}

std::string shown(const Metrics& metrics) {
    std::string all;
    for (const auto& [name, value] : metrics) {
        char digits[32];  // the fewest that tell it from every other number
        const std::string number(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
        all += (all.empty() ? "" : " ") + name + "=" + number;
    }
    return all;
}

}  // namespace hopyard::detail
