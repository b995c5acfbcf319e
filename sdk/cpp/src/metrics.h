// Checks of what is reported, and texts that can be sent.
#pragma once

#include <string>
#include <string_view>

#include "hopyard/hopyard.h"

namespace hopyard::detail {

/// @throws UsageError  A name is not allowed, or there are too many; `found` begins the message.
void check_metrics(const Metrics& metrics, const std::string& found);

/// Valid UTF-8 of at most `most` bytes: what is none is replaced.
std::string sendable(std::string_view text, std::size_t most);

/// "name=value name=value", exactly.
std::string shown(const Metrics& metrics);

}  // namespace hopyard::detail
