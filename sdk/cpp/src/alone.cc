// A run without a cluster: what is reported is printed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "metrics.h"
#include "session.h"

namespace hopyard::detail {
namespace {

namespace fs = std::filesystem;

class AloneSession : public Session {
  public:
    explicit AloneSession(Position until) : until_(until) {}

    ~AloneSession() override {
        std::error_code ignored;
        if (!scratch_.empty()) fs::remove_all(scratch_, ignored);
    }

    Position position() override { return position_; }

    fs::path scratch() override {
        if (scratch_.empty()) {
            std::string name = (fs::temp_directory_path() / "hopyard-XXXXXX").string();
            if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
            scratch_ = name;
        }
        return scratch_;
    }

    Decision begin(bool finished) override { return finished ? Decision::reached : Decision::go_on; }

    Decision report(Position position, const Metrics& metrics, bool finished, const Saver&) override {
        position_ = position;
        std::printf("position %lld: %s\n", static_cast<long long>(position), shown(metrics).c_str());
        std::fflush(stdout);
        return finished || (until_ > 0 && position >= until_) ? Decision::reached : Decision::go_on;
    }

    void fail(const std::string&, bool) override {}

  private:
    Position until_;
    Position position_ = 0;
    fs::path scratch_;
};

}  // namespace

std::unique_ptr<Session> alone_session(Position until) { return std::make_unique<AloneSession>(until); }

}  // namespace hopyard::detail
