// Whether the agent has been silent for too long.
#pragma once

#include <algorithm>
#include <limits>

namespace hopyard::detail {

/// Asked at every tick of a thread; times are monotonic seconds. A process that was itself stopped could not hear anybody: a
/// tick that comes late therefore grants the agent a full lease again.
class LeaseWatch {
  public:
    explicit LeaseWatch(double now) : heard_(now), ticked_(now) {}

    double tick_seconds() const { return std::min(1.0, lease_ / 8); }
    void renew(double lease_seconds, double now);
    void heard(double now) { heard_ = now; }
    bool expired(double now);

  private:
    double lease_ = std::numeric_limits<double>::infinity();
    double heard_, ticked_;
};

constexpr int exit_agent_gone = 75;
constexpr int exit_hung = 76;

/// End this process from any thread, whatever the others do.
[[noreturn]] void leave_at_once(int code, const char* reason);

/// Have the kernel end this process when its parent, the agent, dies.
void die_with(int parent);

double monotonic_seconds();

}  // namespace hopyard::detail
