// The attachment of this process to its agent: what it says goes out, commands come in, and it ends when the agent is gone.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include "control.h"
#include "hopyard/v1/application.grpc.pb.h"
#include "lease.h"
#include "outbox.h"

namespace hopyard::detail {

class Boundary;

class Attachment {
  public:
    /// What came of it: a run to make, or the words with which the agent refused.
    struct Answer {
        std::unique_ptr<v1::ApplicationStart> start;
        std::shared_ptr<Boundary> boundary;
        std::string refused;
    };

    /// Makes the boundary of a run, at once: commands for it may follow.
    using Take = std::function<std::shared_ptr<Boundary>(const v1::ApplicationStart&, Outbox&)>;

    Attachment(const std::string& agent, const std::string& token, Take take);
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;
    ~Attachment();

    Outbox outbox;

    /// The agent's answer to the first word. Without one in time this process ends.
    Answer wait();

    /// Have the agent keep a file or folder as the state at a position.
    /// @throws StateRefused  It is not what a snapshot can hold.
    /// @throws Lost  It cannot be kept.
    v1::Snapshot save(const std::filesystem::path& entry, Position position);

    /// Have the agent put the state that the run starts from into `folder`, which is not there yet.
    /// @throws Lost  It is damaged, or cannot be put there.
    void load(const std::filesystem::path& folder);

    /// The run is over for this process: commands for it are dropped, and the agent may end the stream.
    void forget();

    /// End it in order: the agent ends the stream once it has read the last word. Safe to call twice.
    void close();

  private:
    void send();
    void receive();
    void keep_watch();
    void dispatch(const v1::AttachResponse& response);
    std::shared_ptr<Boundary> run();

    Take take_;
    std::string authorization_;
    std::unique_ptr<v1::ApplicationService::Stub> stub_;
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachResponse>> stream_;

    std::mutex mutex_;
    std::condition_variable changed_;
    LeaseWatch watch_;
    std::shared_ptr<Boundary> run_;
    std::unique_ptr<Answer> answer_;
    bool spoken_to_ = false;
    bool over_ = false;
    bool closing_ = false;
    bool received_ = false;

    std::thread sender_, receiver_, watcher_;
};

}  // namespace hopyard::detail
