#include "lease.h"

#include <signal.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>

namespace hopyard::detail {

void LeaseWatch::renew(double lease_seconds, double now) {
    lease_ = lease_seconds;
    heard(now);
}

bool LeaseWatch::expired(double now) {
    if (now - ticked_ > 3 * tick_seconds()) heard_ = now;
    ticked_ = now;
    return now - heard_ > lease_;
}

void leave_at_once(int code, const char* reason) {
    const std::string said = "hopyard: process " + std::to_string(getpid()) + " ends: " + reason + "\n";
    if (write(2, said.data(), said.size()) < 0) {
        // Nobody reads it any more.
    }
    _exit(code);
}

void die_with(int parent) {
#ifdef __linux__
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
        throw std::system_error(errno, std::generic_category(), "prctl(PR_SET_PDEATHSIG)");
    }
#endif
    // It may have died before the kernel was told.
    if (getppid() != parent) _exit(exit_agent_gone);
}

double monotonic_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace hopyard::detail
