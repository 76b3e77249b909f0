#include "server/resp/command/claims.hpp"

#include <fmt/format.h>

#include <utility>

#include "adapters/redis/keys.hpp"
#include "guard/error.hpp"
#include "guard/support/text.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::string_view fence_form = "FENCE RESOURCE TOKEN [HOLDER] [SIG SIGNATURE]";
constexpr std::string_view fenced_form =
    "FENCED RESOURCE TOKEN HOLDER [SIG SIGNATURE] [SEQ NUMBER] COMMAND [ARGUMENT ...]";

Claim claim_of(std::string_view resource, std::string_view token, std::string_view holder) {
  if (const auto objection = Resource::objection(resource); !objection.empty())
    throw InvalidInput(std::string{objection});
  if (auto text = redis::objection_to_resource(resource); !text.empty()) throw InvalidInput(std::move(text));
  const auto number = Token::parse(token);
  if (!number) throw InvalidInput("a token is a number of 1 to 9223372036854775807, without leading zeros");
  return {Resource{std::string{resource}}, *number, Holder{std::string{holder}}, std::nullopt};
}

}  // namespace

void Claims::hold(int database, HeldClaimPtr claim) {
  auto& place = held_[database][claim->claim.resource.name()];
  if (!place) ++count_;
  place = std::move(claim);
  has_held_ = true;
}

const HeldClaimPtr* Claims::find(int database, std::string_view resource) const {
  const auto all = held_.find(database);
  if (all == held_.end()) return nullptr;
  const auto found = all->second.find(resource);
  return found == all->second.end() ? nullptr : &found->second;
}

bool Claims::drop(int database, std::string_view resource) {
  const auto all = held_.find(database);
  if (all == held_.end()) return false;
  const auto found = all->second.find(resource);
  if (found == all->second.end()) return false;
  all->second.erase(found);
  --count_;
  return true;
}

void Claims::drop_database(int database) {
  const auto all = held_.find(database);
  if (all == held_.end()) return;
  count_ -= all->second.size();
  held_.erase(all);
}

void Claims::clear() noexcept {
  held_.clear();
  count_ = 0;
}

bool Claims::add_to(Needs& needs, int database, std::string_view resource) const {
  const auto* held = find(database, resource);
  if (held == nullptr) return false;
  if (std::exchange((*held)->in_command, commands_seen_) != commands_seen_) needs.claims.push_back(*held);
  return true;
}

std::vector<HeldClaimPtr> Claims::list(int database) const {
  std::vector<HeldClaimPtr> all;
  if (const auto found = held_.find(database); found != held_.end())
    for (const auto& [resource, claim] : found->second) all.push_back(claim);
  return all;
}

std::vector<std::pair<int, HeldClaimPtr>> Claims::list_all() const {
  std::vector<std::pair<int, HeldClaimPtr>> all;
  for (const auto& [database, claims] : held_)
    for (const auto& [resource, claim] : claims) all.emplace_back(database, claim);
  return all;
}

SpokenClaim parse_fence(redis::Arguments words) {
  const auto count = words.size();
  const bool is_signed = count >= 5 && equals_ignoring_case(words[count - 2], "SIG");
  const auto plain = is_signed ? count - 2 : count;
  if (plain < 3 || plain > 4) throw InvalidInput(fmt::format("write {}", fence_form));
  return {claim_of(words[1], words[2], plain == 4 ? words[3] : std::string_view{}),
          is_signed ? words[count - 1] : std::string_view{},
          {}};
}

SpokenClaim parse_fenced(redis::Arguments words) {
  if (words.size() < 5) throw InvalidInput(fmt::format("write {}", fenced_form));
  SpokenClaim spoken{claim_of(words[1], words[2], words[3]), {}, {}};
  std::size_t at = 4;
  const auto is_option = [&](std::string_view name) {
    return at + 2 < words.size() && equals_ignoring_case(words[at], name);
  };
  if (is_option("SIG")) {
    spoken.signature = words[at + 1];
    at += 2;
  }
  if (is_option("SEQ")) {
    spoken.claim.sequence = Sequence::parse(words[at + 1]);
    if (!spoken.claim.sequence) throw InvalidInput("a sequence is a number of 0 to 9223372036854775807");
    at += 2;
  }
  spoken.command = words.subspan(at);
  return spoken;
}

}  // namespace fenceguard::resp
