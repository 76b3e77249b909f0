#pragma once

// ObjectService: the objects of a storage over HTTP, each write and each fenced read under a claim. Turns
// requests into calls of the ObjectStore and its reports into answers; decides nothing itself. See docs for
// the table of answers.
//
// Thread safety: as http::Handler. REQUIRES: what it refers to outlives it and its pending calls.

#include <variant>

#include "guard/store/pending_calls.hpp"
#include "guard/store/storage.hpp"
#include "server/data/claim_fields.hpp"
#include "server/data/conditions.hpp"
#include "server/data/data_service.hpp"
#include "server/data/resource_path.hpp"
#include "server/data/signature.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

class ObjectService : public http::Handler {
 public:
  ObjectService(ObjectStore& objects, const ServiceContext& context)
      : objects_{objects},
        metrics_{context.metrics},
        log_{context.log},
        resource_depth_{context.resource_depth},
        keys_{context.keys},
        hosts_{context.hosts} {}

  [[nodiscard]] std::optional<http::Response> preview(http::Request& request) override;
  void handle(http::Request request, std::shared_ptr<http::Caller> caller, http::Reply reply) override;
  [[nodiscard]] http::Response refuse(unsigned status, std::string_view why) override;

  // Blocks until the store has answered every call.
  void wait_idle() const { pending_.wait(); }

 private:
  enum class Method { get, head, put, remove };
  struct Operation {
    Method method;
    ResourcePath at;
    std::optional<ClaimFields> claim;
    Conditions conditions;
  };
  // Whose request it was, for the log.
  struct Sender {
    std::string client;
    http::Fields fields;

    [[nodiscard]] Requester requester() const { return {client, fields}; }
  };
  // What a read's answer is made of, beside its outcome.
  struct Asked {
    std::optional<Claim> claim;
    Resource resource;
    Conditions conditions;
    Sender sender;
  };

  [[nodiscard]] static std::optional<Method> parse_method(std::string_view method) noexcept;
  [[nodiscard]] std::variant<Operation, http::Response> parse(const http::Request& head);
  [[nodiscard]] std::optional<http::Response> refuse_unsigned(const Operation& operation,
                                                              const http::Request& head);
  void write(Operation operation, http::Request request, http::Reply reply);
  void read(Operation operation, Sender sender, http::Reply reply);
  [[nodiscard]] http::Response answer_write(const Claim& claim, const Requester& requester,
                                            const Outcome<WriteReport>& outcome);
  [[nodiscard]] http::Response answer_read(const Asked& asked, Outcome<ReadReport> outcome);
  [[nodiscard]] http::Response answer_fault(std::string_view what, const Claim& claim, const Fault& fault,
                                            const Requester& requester);
  [[nodiscard]] http::Response answer_fault(std::string_view what, const Resource& resource,
                                            const Fault& fault, const Requester& requester);
  void note(std::string_view what, const Claim& claim, const Ruling& ruling, const Requester& requester);

  ObjectStore& objects_;
  Metrics& metrics_;
  RefusalLog& log_;
  std::size_t resource_depth_;
  const ClaimKeys* keys_;
  const HostCheck* hosts_;
  PendingCalls pending_;
};

}  // namespace fenceguard
