#pragma once

// RulingReporter: what is told of the rulings on one client's writes: metrics, the log, and to the holder of
// the claims under which the client came (serve --hold), which gives them back where a fence refuses them.
//
// Thread safety: the loop's thread only.

#include <memory>
#include <string>

#include "server/data/report.hpp"
#include "server/leases/lease_holder.hpp"
#include "server/resp/upstream/client_links.hpp"

namespace fenceguard::resp {

class RulingReporter final : public RelayObserver {
 public:
  RulingReporter(const ServiceContext& context, const ClientLinks& links)
      : context_{context}, links_{links} {}

  // client: its host, for the log.
  void begin(std::string client) { client_ = std::move(client); }
  [[nodiscard]] const std::string& client() const noexcept { return client_; }
  // Under which it came; null: it brings its own.
  void lend(std::shared_ptr<HeldClaims> claims) { claims_ = std::move(claims); }
  [[nodiscard]] const std::shared_ptr<HeldClaims>& lent() const noexcept { return claims_; }

  void ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest,
             std::size_t count) override {
    const auto sent_at = links_.sent_at();
    if (operation[0] == 'w' && sent_at != net::SteadyTime{})
      context_.metrics.observe_write(std::chrono::steady_clock::now() - sent_at);
    report_ruling(context_, operation, claim, verdict, highest, client_, count);
    if (claims_ && (verdict == Verdict::stale || verdict == Verdict::conflict)) claims_->refused();
  }
  void raised(const Claim& claim) override {
    context_.metrics.count_advance();
    context_.log.taken_over(claim);
  }
  void failed(const char* operation, const Claim& claim, const Fault& fault, std::size_t count) override {
    report_fault(context_, operation, claim, fault, client_, count);
    // A namespace that has forgotten: what is granted to the guard itself is not bounded.
    if (claims_ && fault.kind == FaultKind::implausible) claims_->refused();
  }
  void missing(std::string_view resource) override {
    context_.metrics.count_missing();
    if (const auto named = Resource::parse(resource)) context_.log.missing("write", *named, client_);
  }
  void not_signed(const char* operation, const Claim& claim) override {
    report_unsigned(context_, operation, claim, client_);
  }

 private:
  const ServiceContext& context_;
  const ClientLinks& links_;
  std::string client_;
  std::shared_ptr<HeldClaims> claims_;
};

}  // namespace fenceguard::resp
