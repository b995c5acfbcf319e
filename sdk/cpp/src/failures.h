// Whose fault it is when a run fails, and what is said about it.
#pragma once

#include <filesystem>
#include <string>

#include "control.h"
#include "hopyard/values.h"

namespace hopyard::detail {

/// Something went wrong that is not the fault of the user's code: the job goes on from its last snapshot, elsewhere.
class Lost : public Error {
  public:
    using Error::Error;
};

/// What was to be saved is not what a snapshot can hold: the program's own mistake.
class StateRefused : public Error {
  public:
    using Error::Error;
};

struct Failure {
    std::string message;
    bool user;  // else the job goes on from its last snapshot, elsewhere
};

/// "PHASE at position N: REASON".
std::string at(const std::string& phase, Position position, const std::string& reason);

/// What the exception means that is being handled. Called inside of a catch.
/// @param phase  What was under way: create, load, train or save.
/// @param disk  A folder on the disk that snapshots are saved to.
Failure failure(const std::string& phase, Position position, const std::filesystem::path& disk);

}  // namespace hopyard::detail
