#include "adapters/redis/token_source.hpp"

#include <fmt/format.h>

#include "adapters/redis/errors.hpp"
#include "adapters/redis/pool.hpp"
#include "adapters/redis/scripts.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

class RedisSource : public TokenSource {
 public:
  using Ms = std::chrono::milliseconds;

  explicit RedisSource(const Address& address) : pool_{address}, keys_{address.prefix} {}

  std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    require_sensible_ttl(ttl);
    const auto ttl_ms = std::to_string(ttl.count());
    const auto reply = run(fmt::format("taking the lock of '{}'", resource.name()), scripts::grant(),
                           {keys_.lock(resource), counter(resource)}, {holder.id(), ttl_ms, "ask"});
    const auto& word = reply.elements.at(0).text;
    if (word == "held") {
      const auto left = reply.elements.at(1).integer;
      return Held{Ms{left < 0 ? 1'000 : left + 1}};
    }
    Grant grant{{resource, token_of(reply.elements.at(1)), holder, std::nullopt}, ttl, word == "granted"};
    grant.ttl = Ms{parse_decimal(reply.elements.at(2).text).value_or(ttl.count())};
    return grant;
  }

  Renewal renew(const Claim& claim, Ms ttl) override {
    require_sensible_ttl(ttl);
    const auto reply = run(fmt::format("renewing the lock of '{}'", claim.resource.name()), scripts::renew(),
                           {keys_.lock(claim.resource)},
                           {to_string(claim.token), claim.holder.id(), std::to_string(ttl.count())});
    return reply.integer == 1 ? Renewal::renewed : Renewal::lost;
  }

  Release release(const Claim& claim) override {
    const auto reply = run(fmt::format("releasing the lock of '{}'", claim.resource.name()),
                           scripts::release(), {keys_.lock(claim.resource)},
                           {to_string(claim.token), claim.holder.id(), keys_.released(claim.resource)});
    return reply.integer == 1 ? Release::released : Release::not_held;
  }

  Release end(const Resource& resource) override {
    const auto reply = run(fmt::format("ending the lease of '{}'", resource.name()), scripts::end(),
                           {keys_.lock(resource)}, {keys_.released(resource)});
    return reply.integer == 1 ? Release::released : Release::not_held;
  }

  std::optional<LeaseRecord> show(const Resource& resource) override {
    const auto reply = run(fmt::format("looking at the lock of '{}'", resource.name()), scripts::show(),
                           {keys_.lock(resource)}, {});
    if (reply.is_nil()) return std::nullopt;
    return LeaseRecord{
        {resource, token_of(reply.elements.at(0)), Holder{reply.elements.at(1).text}, std::nullopt},
        Ms{reply.elements.at(2).integer}};
  }

  void raise(const Resource& resource, Token mark) override {
    (void)run("raising the counter", scripts::raise(), {counter(resource)}, {to_string(mark)});
  }

  Token draw() override {
    return token_of(run("drawing a number", scripts::draw_one(), {keys_.counter()}, {}));
  }

  std::optional<Token> lowest_live() override { return std::nullopt; }

 private:
  [[nodiscard]] std::string counter(const Resource& resource) const {
    return pool_.is_cluster() ? keys_.counter(resource) : keys_.counter();
  }

  [[nodiscard]] static Token token_of(const Reply& reply) {
    const auto token = Token::parse(reply.text);
    if (!token) throw Unavailable(fmt::format("Redis answered with the token '{}'", reply.text));
    return *token;
  }

  Reply run(const std::string& doing, const Script& script, const std::vector<std::string>& keys,
            const std::vector<std::string>& arguments) {
    return pool_.with([&](Client& client) {
      const Run run{script, {keys.begin(), keys.end()}, {arguments.begin(), arguments.end()}};
      return unless_error(doing, client.run(run));
    });
  }

  Pool pool_;
  Keys keys_;
};

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  return std::make_unique<RedisSource>(address_of(url, {"lock_key", "fair", "wait_replicas"}));
}

}  // namespace fenceguard::redis
