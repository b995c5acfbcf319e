#include "attachment.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "boundary.h"
#include "failures.h"

namespace hopyard::detail {
namespace {

constexpr double start_seconds = 60;  // how long the agent may take to answer the first word
constexpr std::chrono::seconds goodbye{5};
constexpr int most_bytes = 64 * 1024 * 1024;

std::shared_ptr<grpc::Channel> channel(const std::string& agent) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.enable_http_proxy", 0);
    arguments.SetMaxReceiveMessageSize(most_bytes);
    arguments.SetMaxSendMessageSize(most_bytes);
    return grpc::CreateCustomChannel(agent, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Attachment::Attachment(const std::string& agent, const std::string& token, Take take)
    : take_(std::move(take)),
      authorization_("Bearer " + token),
      stub_(v1::ApplicationService::NewStub(channel(agent))),
      watch_(monotonic_seconds()) {
    watch_.renew(start_seconds, monotonic_seconds());
    context_.AddMetadata("authorization", authorization_);
    context_.set_wait_for_ready(true);
    v1::AttachRequest hello;
    hello.mutable_hello()->set_pid(getpid());
    hello.mutable_hello()->set_library("hopyard-cpp " HOPYARD_VERSION);
    outbox.send(std::move(hello));
    watcher_ = std::thread([this] { keep_watch(); });
    receiver_ = std::thread([this] { receive(); });
}

Attachment::~Attachment() { close(); }

Attachment::Answer Attachment::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answer_ != nullptr; });
    return std::move(*answer_);
}

v1::Snapshot Attachment::save(const std::filesystem::path& entry, Position position) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", authorization_);
    v1::SaveStateRequest request;
    request.set_position(position);
    request.set_path(std::filesystem::absolute(entry).string());
    v1::SaveStateResponse response;
    const auto writer = stub_->SaveState(&context, &response);
    writer->Write(request);  // If that fails, the status says why.
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    const grpc::StatusCode code = status.error_code();
    if (code == grpc::INVALID_ARGUMENT || code == grpc::NOT_FOUND) throw StateRefused(status.error_message());
    if (!status.ok()) throw Lost(status.error_message());
    return response.snapshot();
}

void Attachment::load(const std::filesystem::path& folder) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", authorization_);
    v1::LoadStateRequest request;
    request.set_folder(folder.string());
    v1::LoadStateResponse response;
    const auto reader = stub_->LoadState(&context, request);
    while (reader->Read(&response)) {
        // With a folder nothing is streamed.
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok()) throw Lost(status.error_message());
}

void Attachment::forget() {
    const std::lock_guard lock(mutex_);
    run_.reset();
    over_ = true;
}

void Attachment::close() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;  // First: what the agent answers to the last word is no reason to leave at once.
        changed_.notify_all();
    }
    outbox.close();
    {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, goodbye, [&] { return received_; })) context_.TryCancel();
    }
    for (std::thread* thread : {&receiver_, &watcher_}) {
        if (thread->joinable()) thread->join();
    }
}

void Attachment::send() {
    while (const std::optional<v1::AttachRequest> request = outbox.take()) {
        if (!stream_->Write(*request)) return;  // Why, the receiver learns.
    }
    stream_->WritesDone();
}

void Attachment::receive() {
    stream_ = stub_->Attach(&context_);
    sender_ = std::thread([this] { send(); });
    v1::AttachResponse response;
    while (stream_->Read(&response)) dispatch(response);
    outbox.close();
    sender_.join();
    const grpc::Status status = stream_->Finish();
    const std::lock_guard lock(mutex_);
    if (!closing_ && !over_) {
        if (spoken_to_ || status.ok()) {
            const std::string why = status.ok() ? "the agent ended the attachment"
                                                : "the attachment to the agent broke: " + status.error_message();
            leave_at_once(exit_agent_gone, why.c_str());
        }
        answer_ = std::make_unique<Answer>(Answer{nullptr, nullptr, status.error_message()});
        closing_ = true;
    }
    received_ = true;
    changed_.notify_all();
}

void Attachment::dispatch(const v1::AttachResponse& response) {
    {
        const std::lock_guard lock(mutex_);
        spoken_to_ = true;
        watch_.heard(monotonic_seconds());
        if (response.has_start()) watch_.renew(response.start().lease_seconds(), monotonic_seconds());
    }
    if (response.has_start()) {
        auto answer = std::make_unique<Answer>();
        answer->start = std::make_unique<v1::ApplicationStart>(response.start());
        answer->boundary = take_(*answer->start, outbox);
        const std::lock_guard lock(mutex_);
        run_ = answer->boundary;
        answer_ = std::move(answer);
        changed_.notify_all();
    } else if (const std::shared_ptr<Boundary> present = run()) {
        if (response.has_decide()) present->decide(response.decide());
        if (response.has_amend()) present->amend(response.amend());
    }
}

std::shared_ptr<Boundary> Attachment::run() {
    const std::lock_guard lock(mutex_);
    return run_;
}

void Attachment::keep_watch() {
    std::unique_lock lock(mutex_);
    while (!received_) {
        const std::chrono::duration<double> tick(watch_.tick_seconds());
        changed_.wait_for(lock, tick, [&] { return received_ || (closing_ && run_ == nullptr); });
        if (closing_ && run_ == nullptr) return;
        const double now = monotonic_seconds();
        if (watch_.expired(now)) leave_at_once(exit_agent_gone, "the agent has been silent for longer than its lease");
        if (run_ != nullptr && run_->hung(now)) {
            leave_at_once(exit_hung, "an iteration took longer than the experiment's iteration time-out");
        }
    }
}

}  // namespace hopyard::detail
