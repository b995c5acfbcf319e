// What a process has to say to its agent, in order, between the threads that say it and the one that sends it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>

#include "hopyard/v1/application.pb.h"

namespace hopyard::detail {

class Outbox {
  public:
    /// Block while too much waits. For the training thread only: answers must never wait behind reports.
    void wait_for_room();

    /// Queue a message; never blocks.
    void send(v1::AttachRequest message);

    /// Queue a report; reports that wait one behind the other go out together. `patient`: nobody waits for it, so that it may wait
    /// some milliseconds for company.
    void send(v1::Report report, bool patient);

    /// End it once everything that waits has been taken.
    void close();

    /// What is to be sent next: a heartbeat when nothing was said for a while; none after `close`. Blocks.
    std::optional<v1::AttachRequest> take();

  private:
    using Message = std::variant<v1::AttachRequest, v1::Report>;

    void add(Message message, bool patient);
    bool can_wait() const;
    v1::AttachRequest joined();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Message> waiting_;
    std::size_t patient_ = 0;  // how many of the last messages can wait for company
    double taken_ = 0;
    bool closed_ = false;
};

}  // namespace hopyard::detail
