#include "adapters/mariadb/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/mariadb/fences/rulings.hpp"
#include "adapters/mariadb/lock/lease_pool.hpp"
#include "guard/source/lease_lister.hpp"

namespace fenceguard::mariadb {
namespace {

using Ms = std::chrono::milliseconds;

constexpr std::string_view remaining =
    "CEIL(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), l.expires_at) / 1000)";

class LeaseSource : public TokenSource, public LeaseLister {
 public:
  explicit LeaseSource(const Url& url)
      : pool_{address_of(url)}, leases_{quoted_name(pool_.address().schema) + ".leases"} {}

  std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder, Ms ttl) override {
    const auto rows = pool_.call(Stage::at_commit, "acquiring " + resource.name(), "acquire",
                                 {resource.name(), std::to_string(ttl.count()), holder.id()});
    // At least a moment, so that no caller asks again and again while the last of a term passes.
    if (text_in(rows, 0) != "granted") return Held{std::max(Ms{1}, Ms{number_in(rows, 3)})};
    return Grant{
        {resource, Token{number_in(rows, 1)}, holder, std::nullopt}, ttl, number_in(rows, 2) != 0, {}};
  }

  Renewal renew(const Claim& claim, Ms ttl) override {
    auto arguments = arguments_of(claim);
    arguments.push_back(std::to_string(ttl.count()));
    const auto rows = pool_.call_renewal("renewing " + claim.resource.name(), "renew", arguments);
    return number_in(rows, 0) != 0 ? Renewal::renewed : Renewal::lost;
  }

  Release release(const Claim& claim) override {
    return released(pool_.call(Stage::at_commit, "releasing " + claim.resource.name(), "release_lease",
                               arguments_of(claim)));
  }

  Release end(const Resource& resource) override {
    return released(pool_.call(Stage::at_commit, "ending the lease of " + resource.name(), "end_lease",
                               {resource.name()}));
  }

  std::optional<LeaseRecord> show(const Resource& resource) override {
    const auto rows = pool_.look(
        "looking for the lease of " + resource.name(),
        fmt::format(
            "SELECT l.token, l.holder, {} FROM {} l WHERE l.resource = CAST(? AS BINARY) AND l.token IS NOT "
            "NULL AND l.expires_at > UTC_TIMESTAMP(6)",
            remaining, leases_),
        {resource.name()});
    if (rows.empty()) return std::nullopt;
    return LeaseRecord{{resource, Token{number_in(rows, 0)}, Holder{rows[0][1].value_or("")}, std::nullopt},
                       Ms{number_in(rows, 2)}};
  }

  LeasePage list_leases(const FenceListing& listing) override {
    const auto rows = pool_.look(
        "listing leases",
        fmt::format(
            "SELECT {}, l.token, l.resource FROM {} l WHERE l.resource > CAST(? AS BINARY) AND l.resource "
            ">= CAST(? AS BINARY) AND LEFT(l.resource, {}) = CAST(? AS BINARY) AND l.token IS NOT NULL AND "
            "l.expires_at > UTC_TIMESTAMP(6) ORDER BY l.resource LIMIT {}",
            remaining, leases_, listing.prefix.size(), listing.limit + 1),
        {listing.after, listing.prefix, listing.prefix});
    LeasePage page;
    for (const auto& row : rows) {
      const Rows one{row};
      LeaseRecord lease{{Resource{text_in(one, 2)}, Token{number_in(one, 1)}, {}, std::nullopt},
                        Ms{number_in(one, 0)}};
      if (!page.take(std::move(lease), listing)) break;
    }
    return page;
  }

  void raise(const Resource& resource, Token mark) override {
    (void)pool_.call(Stage::at_commit, "raising the counter for " + resource.name(), "raise_counter",
                     {to_string(mark)});
  }

  Token draw() override {
    return Token{number_in(pool_.call(Stage::at_commit, "drawing a number", "draw", {}), 0)};
  }

  std::optional<Token> lowest_live() override {
    const auto rows = pool_.call(Stage::before_commit, "looking for the lowest token", "lowest_live", {});
    return Token{number_in(rows, 0)};
  }

 private:
  static Release released(const Rows& rows) {
    return number_in(rows, 0) != 0 ? Release::released : Release::not_held;
  }

  Pool pool_;
  const std::string leases_;
};

}  // namespace

std::unique_ptr<TokenSource> open_source(const Url& url) {
  return std::make_unique<LeaseSource>(url);
}

}  // namespace fenceguard::mariadb
