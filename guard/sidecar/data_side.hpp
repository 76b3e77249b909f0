#pragma once

// DataSide: the objects of a storage over HTTP, each write and each fenced read under a claim. Turns requests
// into calls of the ObjectStore and its reports into answers; decides nothing itself. See docs for the table
// of answers.
//
// Thread safety: as http::Handler. REQUIRES: what it refers to outlives it and its pending calls.

#include <variant>

#include "guard/http/message.hpp"
#include "guard/sidecar/claim_fields.hpp"
#include "guard/sidecar/conditions.hpp"
#include "guard/sidecar/metrics.hpp"
#include "guard/sidecar/pending_calls.hpp"
#include "guard/sidecar/refusal_log.hpp"
#include "guard/sidecar/resource_path.hpp"
#include "guard/sidecar/signature.hpp"
#include "guard/storage.hpp"

namespace fenceguard {

class DataSide : public http::Handler {
 public:
  // keys: claims must be signed with one of these; null: none needs to be.
  DataSide(ObjectStore& objects, Metrics& metrics, RefusalLog& log, std::size_t resource_depth,
           const ClaimKeys* keys = nullptr)
      : objects_{objects}, metrics_{metrics}, log_{log}, resource_depth_{resource_depth}, keys_{keys} {}

  [[nodiscard]] std::optional<http::Response> preview(const http::Request& head) override;
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

  [[nodiscard]] static std::optional<Method> parse_method(std::string_view method) noexcept;
  [[nodiscard]] std::variant<Operation, http::Response> parse(const http::Request& head);
  [[nodiscard]] std::optional<http::Response> refuse_unsigned(const Operation& operation,
                                                              const http::Request& head);
  void write(Operation operation, http::Request request, http::Reply reply);
  void read(Operation operation, http::Reply reply);
  [[nodiscard]] http::Response answer_write(const Claim& claim, const Outcome<WriteReport>& outcome);
  [[nodiscard]] http::Response answer_read(const std::optional<Claim>& claim, const Resource& resource,
                                           const Conditions& conditions, Outcome<ReadReport> outcome);
  [[nodiscard]] http::Response answer_fault(std::string_view what, const Resource& resource,
                                            const Fault& fault);
  void note(std::string_view what, const Claim& claim, const Ruling& ruling);

  ObjectStore& objects_;
  Metrics& metrics_;
  RefusalLog& log_;
  std::size_t resource_depth_;
  const ClaimKeys* keys_;
  PendingCalls pending_;
};

}  // namespace fenceguard
