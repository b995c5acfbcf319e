#include "outbox.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lease.h"

namespace hopyard::detail {
namespace {

constexpr std::size_t most_waiting = 4096;
constexpr std::size_t most_reports = 500;
constexpr std::size_t most_bytes = 1024 * 1024;
constexpr std::chrono::seconds heartbeat{1};
constexpr double company_seconds = 0.05;

}  // namespace

void Outbox::wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.size() < most_waiting || closed_; });
}

void Outbox::send(v1::AttachRequest message) { add(std::move(message), false); }

void Outbox::send(v1::Report report, bool patient) { add(std::move(report), patient); }

void Outbox::add(Message message, bool patient) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(message));
    patient_ = patient ? patient_ + 1 : 0;
    changed_.notify_all();
}

void Outbox::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
}

std::optional<v1::AttachRequest> Outbox::take() {
    std::unique_lock lock(mutex_);
    const bool spoken = changed_.wait_for(lock, heartbeat, [&] { return !waiting_.empty() || closed_; });
    if (!spoken) {
        v1::AttachRequest alive;
        alive.mutable_heartbeat();
        return alive;
    }
    if (waiting_.empty()) return std::nullopt;
    if (can_wait()) {
        const std::chrono::duration<double> company(std::max(0.0, taken_ + company_seconds - monotonic_seconds()));
        changed_.wait_for(lock, company, [&] { return !can_wait(); });
    }
    taken_ = monotonic_seconds();
    v1::AttachRequest request = joined();
    patient_ = std::min(patient_, waiting_.size());
    changed_.notify_all();
    return request;
}

bool Outbox::can_wait() const {
    return waiting_.size() == patient_ && patient_ < most_reports && !closed_;
}

v1::AttachRequest Outbox::joined() {
    const auto next_report = [&] { return waiting_.empty() ? nullptr : std::get_if<v1::Report>(&waiting_.front()); };
    v1::AttachRequest request;
    if (next_report() == nullptr) {
        request = std::get<v1::AttachRequest>(std::move(waiting_.front()));
        waiting_.pop_front();
        return request;
    }
    std::size_t size = 0;
    auto& reports = *request.mutable_reports()->mutable_reports();
    for (v1::Report* next = next_report(); next != nullptr; next = next_report()) {
        size += next->ByteSizeLong();
        const auto count = static_cast<std::size_t>(reports.size());
        if (count == most_reports || (count > 0 && size > most_bytes)) break;
        *reports.Add() = std::move(*next);
        waiting_.pop_front();
    }
    if (reports.size() == 1) {
        v1::Report only = std::move(*reports.Mutable(0));
        *request.mutable_report() = std::move(only);
    }
    return request;
}

}  // namespace hopyard::detail
