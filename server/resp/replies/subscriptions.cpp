#include "server/resp/replies/subscriptions.hpp"

#include <algorithm>

#include "guard/support/text.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {

bool Subscriptions::is_word(std::string_view name) noexcept {
  const bool is_kin = equals_ignoring_case(name, "SUBSCRIBE") || equals_ignoring_case(name, "PSUBSCRIBE");
  return is_kin || is_end(name) || is_of_shards(name);
}

bool Subscriptions::is_end(std::string_view name) noexcept {
  return equals_ignoring_case(name, "UNSUBSCRIBE") || equals_ignoring_case(name, "PUNSUBSCRIBE") ||
         equals_ignoring_case(name, "SUNSUBSCRIBE");
}

bool Subscriptions::is_of_shards(std::string_view name) noexcept {
  return equals_ignoring_case(name, "SSUBSCRIBE") || equals_ignoring_case(name, "SUNSUBSCRIBE");
}

std::set<std::string, std::less<>>& Subscriptions::set_of(std::string_view name) noexcept {
  if (is_of_shards(name)) return shard_channels_;
  return equals_ignoring_case(name.substr(0, 1), "P") ? patterns_ : channels_;
}

Subscriptions::Size Subscriptions::size_of(redis::Arguments words) noexcept {
  Size size;
  if (is_end(words[0])) return size;
  const auto& names = set_of(words[0]);
  for (const auto name : words.subspan(1)) {
    if (names.contains(name)) continue;
    ++size.names;
    size.bytes += name.size();
  }
  return size;
}

bool Subscriptions::has_room(redis::Arguments words) noexcept {
  const auto size = size_of(words);
  return size.names == 0 || (count() + asked_.names + size.names <= names_max &&
                             bytes_ + asked_.bytes + size.bytes <= bytes_max);
}

void Subscriptions::sent(redis::Arguments words) {
  const auto confirmations =
      words.size() > 1 ? words.size() - 1 : std::max<std::size_t>(1, set_of(words[0]).size());
  const auto size = size_of(words);
  awaited_.push_back({confirmations, size});
  asked_.names += size.names;
  asked_.bytes += size.bytes;
}

void Subscriptions::end_first() {
  asked_.names -= awaited_.front().asked.names;
  asked_.bytes -= awaited_.front().asked.bytes;
  awaited_.pop_front();
}

void Subscriptions::received(std::string_view reply) {
  const auto whole = take_value(reply);
  if (!whole) return;
  if (whole->is_error()) {
    if (!awaited_.empty()) end_first();
    return;
  }
  auto rest = whole->inside;
  const auto kind = take_value(rest);
  const auto name = take_value(rest);
  const auto word = kind ? kind->text : std::string_view{};
  if (word == "message" || word == "pmessage" || word == "smessage") return;
  if (word.ends_with("unsubscribe") && name) {
    auto& names = set_of(word);
    if (const auto found = names.find(name->text); found != names.end()) {
      bytes_ -= found->size();
      names.erase(found);
    }
  } else if (word.ends_with("subscribe") && name) {
    if (set_of(word).emplace(name->text).second) bytes_ += name->text.size();
  }
  if (!awaited_.empty() && --awaited_.front().confirmations == 0) end_first();
}

void Subscriptions::clear() {
  *this = {};
}

}  // namespace fenceguard::resp
