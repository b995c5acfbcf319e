// JSON as Python's json module reads and writes it, NaN and Infinity included.
#pragma once

#include <string>
#include <string_view>

#include "hopyard/values.h"

namespace hopyard::json {

/// The text is no JSON; the message says why and where.
class SyntaxError : public Error {
  public:
    using Error::Error;
};

/// @throws SyntaxError  It is none.
Value parse(std::string_view text);

std::string write(const Value& value);

}  // namespace hopyard::json
