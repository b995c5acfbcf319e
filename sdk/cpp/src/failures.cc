#include "failures.h"

#include <cxxabi.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <memory>
#include <system_error>
#include <typeinfo>

namespace hopyard::detail {
namespace {

constexpr std::uintmax_t full_bytes = 1024 * 1024;  // a disk with less room than this has none left for a snapshot

std::string name_of(const std::type_info* type) {
    if (type == nullptr) return "an exception";
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
    return status == 0 ? name.get() : type->name();
}

bool of_the_disk(const std::error_code& code, bool moving) {
    if (code.category() != std::generic_category() && code.category() != std::system_category()) return false;
    const int number = code.value();
    return number == ENOSPC || number == EDQUOT || number == EIO || (moving && number == EROFS);
}

bool is_full(const std::filesystem::path& disk) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(disk, error);
    return !error && space.available < full_bytes;
}

}  // namespace

std::string at(const std::string& phase, Position position, const std::string& reason) {
    return phase + " at position " + std::to_string(position) + ": " + reason;
}

Failure failure(const std::string& phase, Position position, const std::filesystem::path& disk) {
    const bool saving = phase == "save";
    std::string reason;
    bool user = true;
    try {
        throw;
    } catch (const Lost& error) {
        return {at(phase, position, error.what()), false};
    } catch (const Error& error) {
        reason = error.what();
    } catch (const std::system_error& error) {
        user = !of_the_disk(error.code(), saving || phase == "load");
        reason = error.what();
    } catch (const std::exception& error) {
        reason = std::string(error.what()) + " (" + name_of(abi::__cxa_current_exception_type()) + ")";
    } catch (...) {
        reason = name_of(abi::__cxa_current_exception_type()) + ", which is no std::exception, was thrown";
    }
    // Streams and libraries with writers of their own say nothing of the disk.
    if (user && saving && is_full(disk)) {
        user = false;
        reason += " (no space left on the disk of " + disk.string() + ")";
    }
    return {at(phase, position, reason), user};
}

}  // namespace hopyard::detail
