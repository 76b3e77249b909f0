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

// One call of a script of the guard's.
class ScriptReply : public PendingReply {
 public:
  std::size_t send(bool again) final;
  [[nodiscard]] bool may_repeat() const noexcept final { return true; }

 protected:
  ScriptReply(const RelayContext& context, int slot) : PendingReply{context, Channel::shared, slot} {}

 private:
  [[nodiscard]] virtual ScriptCall make_call(bool is_cluster) = 0;

  ScriptCall call_;
};

// A batch takes no more commands once it was sent.
class BatchReply final : public ScriptReply {
 public:
  BatchReply(const RelayContext& context, CommandBatch batch, int slot)
      : ScriptReply{context, slot}, batch_{std::move(batch)} {}

  [[nodiscard]] CommandBatch& batch() noexcept { return batch_; }

  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] std::string_view fail(const Fault& fault) override;
  [[nodiscard]] bool writes() const noexcept override { return batch_.writes(); }
  [[nodiscard]] bool awaits_judged_write() const noexcept override {
    return state() == State::awaited && writes() && batch_.claim();
  }
  void add_claims(std::vector<HeldClaimPtr>& claims) const override {
    if (writes() && batch_.claim()) claims.push_back(batch_.claim());
  }

 private:
  [[nodiscard]] ScriptCall make_call(bool is_cluster) override {
    return batch_.call(context_.options.keys, is_cluster, context_.options.jump_max);
  }

  CommandBatch batch_;
};

// What follows must not be judged before it.
class ClaimAdvance final : public ScriptReply {
 public:
  // The claim is held in the database when the fence has ruled: one that was refused too, so that its writes
  // are told why.
  ClaimAdvance(const RelayContext& context, int slot, HeldClaimPtr claim, Claims& claims, int database)
      : ScriptReply{context, slot}, claim_{std::move(claim)}, claims_{claims}, database_{database} {}

  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] std::string_view fail(const Fault& fault) override;
  [[nodiscard]] bool is_blocking() const noexcept override { return true; }
  void add_claims(std::vector<HeldClaimPtr>& claims) const override { claims.push_back(claim_); }

 private:
  [[nodiscard]] ScriptCall make_call(bool is_cluster) override {
    return advance_call(claim_->claim, context_.options.keys, is_cluster, context_.options.jump_max);
  }

  const HeldClaimPtr claim_;
  Claims& claims_;
  const int database_;
};

class FenceShow final : public ScriptReply {
 public:
  FenceShow(const RelayContext& context, int slot, Resource resource)
      : ScriptReply{context, slot}, resource_{std::move(resource)} {}

  [[nodiscard]] Answer replied(std::string_view reply) override;

 private:
  [[nodiscard]] ScriptCall make_call(bool is_cluster) override;

  const Resource resource_;
};

}  // namespace fenceguard::resp
