#pragma once

// What is sent on the connections that a client shares with others: a command as it came, a batch of commands
// in the guard's script, the advance of a fence (FENCE), and the view of one (FENCE.SHOW).
//
// Not thread-safe.

#include "server/resp/replies/pending_reply.hpp"

namespace fenceguard::resp {

// Its reply is the client's, unchanged.
class PlainCommand final : public PendingReply {
 public:
  // request: until it was sent. is_plain_read: it only reads, for a client without claims.
  PlainCommand(const RelayContext& context, int slot, std::string_view request, bool writes,
               bool is_plain_read);

  std::size_t send(bool again) override;
  [[nodiscard]] Answer replied(std::string_view reply) override { return reply; }
  [[nodiscard]] bool writes() const noexcept override { return writes_; }
  [[nodiscard]] bool may_repeat() const noexcept override { return !kept_.empty(); }

 private:
  std::string_view request_;
  std::string kept_;  // the request, in a cluster: it may have to go to another server
  const bool writes_, is_plain_read_;
};

class BatchReply final : public PendingReply {
 public:
  BatchReply(const RelayContext& context, CommandBatch batch, int slot)
      : PendingReply{context, Channel::shared, slot}, batch_{std::move(batch)} {}

  [[nodiscard]] CommandBatch& batch() noexcept { return batch_; }

  // No more commands are added.
  std::size_t send(bool again) override;
  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] std::string_view fail(const Fault& fault) override;
  [[nodiscard]] bool writes() const noexcept override { return batch_.writes(); }
  [[nodiscard]] bool may_repeat() const noexcept override { return true; }
  [[nodiscard]] bool awaits_judged_write() const noexcept override {
    return state() == State::awaited && writes() && batch_.claim();
  }
  void add_claims(std::vector<HeldClaimPtr>& claims) const override {
    if (writes() && batch_.claim()) claims.push_back(batch_.claim());
  }

 private:
  CommandBatch batch_;
  ScriptCall call_;
};

// What follows must not be judged before it.
class ClaimAdvance final : public PendingReply {
 public:
  // The claim is held in the database when the fence has ruled: one that was refused too, so that its writes
  // are told why.
  ClaimAdvance(const RelayContext& context, int slot, HeldClaimPtr claim, Claims& claims, int database)
      : PendingReply{context, Channel::shared, slot},
        claim_{std::move(claim)},
        claims_{claims},
        database_{database} {}

  std::size_t send(bool again) override;
  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] std::string_view fail(const Fault& fault) override;
  [[nodiscard]] bool may_repeat() const noexcept override { return true; }
  [[nodiscard]] bool is_blocking() const noexcept override { return true; }
  void add_claims(std::vector<HeldClaimPtr>& claims) const override { claims.push_back(claim_); }

 private:
  const HeldClaimPtr claim_;
  Claims& claims_;
  const int database_;
  ScriptCall call_;
};

class FenceShow final : public PendingReply {
 public:
  FenceShow(const RelayContext& context, int slot, Resource resource)
      : PendingReply{context, Channel::shared, slot}, resource_{std::move(resource)} {}

  std::size_t send(bool again) override;
  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] bool may_repeat() const noexcept override { return true; }

 private:
  const Resource resource_;
};

}  // namespace fenceguard::resp
